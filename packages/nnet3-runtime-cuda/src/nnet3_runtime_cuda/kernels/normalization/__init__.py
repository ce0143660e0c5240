"""Normalisation, and the softmax."""

from __future__ import annotations

from nnet3_runtime_cuda.kernels.normalization import normalize, softmax

__all__ = ["normalize", "softmax"]
