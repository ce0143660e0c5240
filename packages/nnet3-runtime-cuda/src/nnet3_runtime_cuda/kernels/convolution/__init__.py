"""Convolution and max-pooling."""

from __future__ import annotations

from nnet3_runtime_cuda.kernels.convolution import pooling, time_height_convolution

__all__ = ["pooling", "time_height_convolution"]
