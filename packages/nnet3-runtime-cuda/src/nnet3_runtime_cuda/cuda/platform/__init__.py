"""Devices: memory, kernels, products, replay; CUDA through CuPy."""

from nnet3_runtime_cuda.cuda.platform.platform import Platform

__all__ = ["Platform"]
