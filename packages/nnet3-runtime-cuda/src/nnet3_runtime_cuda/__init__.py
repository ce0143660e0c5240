"""Run and train compiled Kaldi nnet3 computations with NumPy or CuPy."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
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
    from nnet3_runtime_cuda.inference.batches.forming import BatchOptions
    from nnet3_runtime_cuda.inference.batches.queue import UtteranceQueue
    from nnet3_runtime_cuda.inference.chunks import ChunkOptions
    from nnet3_runtime_cuda.inference.model import Model, load
    from nnet3_runtime_cuda.inference.output_scores import ScoreOptions
    from nnet3_runtime_cuda.inference.parallel_computer import ParallelComputer
    from nnet3_runtime_cuda.inference.streams import Stream, StreamState
    from nnet3_runtime_cuda.inference.utterance_segments import (
        EvenSegmentOptions,
        SegmentOptions,
    )
    from nnet3_runtime_cuda.inference.utterance_work import Work
    from nnet3_runtime_cuda.lowering import Capabilities, Plan, check_plan, format_plan, make_plan
    from nnet3_runtime_cuda.tracing import Trace, Tracer, format_trace, trace_events

__version__ = "0.1.0"

__all__ = [
    "BatchOptions",
    "Capabilities",
    "ChunkOptions",
    "DeviceError",
    "DeviceMemoryError",
    "DeviceNnet",
    "EvenSegmentOptions",
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
    "Trace",
    "Tracer",
    "TrainingError",
    "UnsupportedComponentError",
    "UtteranceQueue",
    "Work",
    "check_plan",
    "format_plan",
    "format_trace",
    "load",
    "make_plan",
    "trace_events",
]

if not TYPE_CHECKING:  # a type checker would accept any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_runtime_cuda.computer": ("NnetComputer",),
            "nnet3_runtime_cuda.device": ("DeviceNnet",),
            "nnet3_runtime_cuda.errors": (
                "DeviceError",
                "DeviceMemoryError",
                "PlanError",
                "RunError",
                "TrainingError",
                "UnsupportedComponentError",
            ),
            "nnet3_runtime_cuda.inference.batches.forming": ("BatchOptions",),
            "nnet3_runtime_cuda.inference.batches.queue": ("UtteranceQueue",),
            "nnet3_runtime_cuda.inference.chunks": ("ChunkOptions",),
            "nnet3_runtime_cuda.inference.model": (
                "Model",
                "load",
            ),
            "nnet3_runtime_cuda.inference.output_scores": ("ScoreOptions",),
            "nnet3_runtime_cuda.inference.parallel_computer": ("ParallelComputer",),
            "nnet3_runtime_cuda.inference.utterance_segments": (
                "EvenSegmentOptions",
                "SegmentOptions",
            ),
            "nnet3_runtime_cuda.inference.utterance_work": ("Work",),
            "nnet3_runtime_cuda.lowering": (
                "Capabilities",
                "Plan",
                "check_plan",
                "format_plan",
                "make_plan",
            ),
            "nnet3_runtime_cuda.inference.streams": (
                "Stream",
                "StreamState",
            ),
            "nnet3_runtime_cuda.tracing": (
                "Trace",
                "Tracer",
                "format_trace",
                "trace_events",
            ),
        },
    )
