"""Devices: memory, kernels, products, replay; CUDA through CuPy."""

from nnet3_runtime_cuda.cuda.platform.platform import Gemm, Matrix, Platform, Properties

__all__ = [
    "Gemm",
    "Matrix",
    "Platform",
    "Properties",
]
