"""Affine and linear maps, also of rows spliced over time."""

from __future__ import annotations

from nnet3_runtime_cuda.kernels.affine import affine, tdnn

__all__ = ["affine", "tdnn"]
