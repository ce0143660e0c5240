"""Run and train compiled Kaldi nnet3 computations with NumPy or CuPy."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

__version__ = "0.2.0"

if TYPE_CHECKING:
    from nnet3_runtime_cuda.computer import NnetComputer as NnetComputer
    from nnet3_runtime_cuda.device import DeviceNnet as DeviceNnet
    from nnet3_runtime_cuda.errors import DeviceError as DeviceError
    from nnet3_runtime_cuda.errors import DeviceMemoryError as DeviceMemoryError
    from nnet3_runtime_cuda.errors import RunError as RunError
    from nnet3_runtime_cuda.errors import TrainingError as TrainingError
    from nnet3_runtime_cuda.errors import UnsupportedComponentError as UnsupportedComponentError
    from nnet3_runtime_cuda.tracing import Trace as Trace
    from nnet3_runtime_cuda.tracing import Tracer as Tracer
    from nnet3_runtime_cuda.tracing import format_trace as format_trace
    from nnet3_runtime_cuda.tracing import trace_events as trace_events
else:
    __getattr__, __dir__ = on_first_use(__name__)
