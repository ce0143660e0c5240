"""The processor as a machine: operations become calls of NumPy and of a BLAS library."""

from nnet3_runtime_cuda.cpu.products.choices import choices
from nnet3_runtime_cuda.cpu.tape import NumpyTape

__all__ = ["NumpyTape", "choices"]
