"""Run and train compiled Kaldi nnet3 computations with NumPy or CuPy."""

from nnet3_runtime_cuda.computer import NnetComputer
from nnet3_runtime_cuda.device import DeviceNnet
from nnet3_runtime_cuda.errors import (
    DeviceError,
    DeviceMemoryError,
    RunError,
    TableError,
    UnsupportedComponentError,
)
from nnet3_runtime_cuda.model import Model, load

__version__ = "0.1.0"

__all__ = [
    "DeviceError",
    "DeviceMemoryError",
    "DeviceNnet",
    "Model",
    "NnetComputer",
    "RunError",
    "TableError",
    "UnsupportedComponentError",
    "load",
]
