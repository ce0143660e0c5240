"""The arithmetic of components: kernel classes, found by `kernel_class`.

A class serves one component type, or a few like it. Each family has a file. Kernels are plain array
code over `Tape`. The docstrings of the classes have the formulas, with x for the input, y for the
output, and dx, dy for the derivatives of the objective with respect to them.
"""

from __future__ import annotations

from nnet3_runtime_cuda.kernels.base import (
    Backpropagation,
    ComponentStore,
    Kernel,
    Memo,
    Propagation,
)
from nnet3_runtime_cuda.kernels.registry import kernel_class, kernel_for

__all__ = [
    "Backpropagation",
    "ComponentStore",
    "Kernel",
    "Memo",
    "Propagation",
    "kernel_class",
    "kernel_for",
]
