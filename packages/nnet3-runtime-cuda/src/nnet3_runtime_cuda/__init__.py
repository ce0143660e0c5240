"""Run and train compiled Kaldi nnet3 computations with NumPy or CuPy."""

from nnet3_runtime_cuda.computer import NnetComputer
from nnet3_runtime_cuda.device import DeviceNnet
from nnet3_runtime_cuda.errors import (
    DeviceError,
    DeviceMemoryError,
    PlanError,
    RunError,
    TrainingError,
    UnsupportedComponentError,
)
from nnet3_runtime_cuda.inference.chunks import ChunkOptions
from nnet3_runtime_cuda.inference.model import Model, load
from nnet3_runtime_cuda.inference.output_scores import ScoreOptions
from nnet3_runtime_cuda.inference.parallel_computer import ParallelComputer
from nnet3_runtime_cuda.inference.utterance_segments import SegmentOptions
from nnet3_runtime_cuda.inference.utterance_work import Work
from nnet3_runtime_cuda.lowering import Capabilities, Plan, check_plan, format_plan, make_plan
from nnet3_runtime_cuda.streams import Stream, StreamState

__version__ = "0.1.0"

__all__ = [
    "Capabilities",
    "ChunkOptions",
    "DeviceError",
    "DeviceMemoryError",
    "DeviceNnet",
    "Model",
    "NnetComputer",
    "ParallelComputer",
    "Plan",
    "PlanError",
    "RunError",
    "ScoreOptions",
    "SegmentOptions",
    "Stream",
    "StreamState",
    "TrainingError",
    "UnsupportedComponentError",
    "Work",
    "check_plan",
    "format_plan",
    "load",
    "make_plan",
]
