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
    from nnet3_runtime_cuda.lowering import Capabilities, Plan, check_plan, format_plan, make_plan
    from nnet3_runtime_cuda.tracing import Trace, Tracer, format_trace, trace_events

__version__ = "0.2.0"

__all__ = [
    "Capabilities",
    "DeviceError",
    "DeviceMemoryError",
    "DeviceNnet",
    "NnetComputer",
    "Plan",
    "PlanError",
    "RunError",
    "Trace",
    "Tracer",
    "TrainingError",
    "UnsupportedComponentError",
    "check_plan",
    "format_plan",
    "format_trace",
    "make_plan",
    "trace_events",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
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
            "nnet3_runtime_cuda.lowering": (
                "Capabilities",
                "Plan",
                "check_plan",
                "format_plan",
                "make_plan",
            ),
            "nnet3_runtime_cuda.tracing": (
                "Trace",
                "Tracer",
                "format_trace",
                "trace_events",
            ),
        },
    )
