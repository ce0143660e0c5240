"""Run and train compiled Kaldi nnet3 computations with NumPy or CuPy."""

from nnet3_runtime_cuda.chunks import ChunkOptions
from nnet3_runtime_cuda.computer import NnetComputer
from nnet3_runtime_cuda.device import DeviceNnet
from nnet3_runtime_cuda.errors import (
    DeviceError,
    DeviceMemoryError,
    ExampleError,
    RunError,
    TableError,
    TrainingError,
    UnsupportedComponentError,
)
from nnet3_runtime_cuda.model import Model, load
from nnet3_runtime_cuda.parallel import ParallelComputer
from nnet3_runtime_cuda.scores import ScoreOptions
from nnet3_runtime_cuda.segments import SegmentOptions
from nnet3_runtime_cuda.training import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    Objective,
    SparsePosteriors,
    Trainer,
    TrainerOptions,
    TrainingExample,
    merge_examples,
    minibatches,
    read_examples,
)
from nnet3_runtime_cuda.work import Work

__version__ = "0.1.0"

__all__ = [
    "ChunkOptions",
    "DenseTargets",
    "DeviceError",
    "DeviceMemoryError",
    "DeviceNnet",
    "ExampleError",
    "ExampleInput",
    "ExampleOutput",
    "Model",
    "NnetComputer",
    "Objective",
    "ParallelComputer",
    "RunError",
    "ScoreOptions",
    "SegmentOptions",
    "SparsePosteriors",
    "TableError",
    "Trainer",
    "TrainerOptions",
    "TrainingError",
    "TrainingExample",
    "UnsupportedComponentError",
    "Work",
    "load",
    "merge_examples",
    "minibatches",
    "read_examples",
]
