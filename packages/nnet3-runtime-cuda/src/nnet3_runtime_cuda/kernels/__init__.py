"""The arithmetic of components: a kernel class for each component type, found by `kernel_class`.

A file for each family. Kernels are plain array code over a `Tape`; the formulas stand in the
docstrings of the classes, with x for the input, y for the output, and dx, dy for the derivatives of
the objective with respect to them.
"""

from __future__ import annotations

from . import (
    affine,
    attention,
    columns,
    composite,
    elementwise,
    general,
    gru,
    lstm,
    masks,
    nonlinear,
    normalize,
    per_element,
    pooling,
    softmax,
    statistics,
    tdnn,
    time_height_convolution,
)
from .base import (
    Backpropagation,
    ComponentStore,
    Kernel,
    KnownPart,
    Memo,
    Propagation,
    StatsStorage,
    kernel_class,
)

__all__ = [
    "Backpropagation",
    "ComponentStore",
    "Kernel",
    "KnownPart",
    "Memo",
    "Propagation",
    "StatsStorage",
    "affine",
    "attention",
    "columns",
    "composite",
    "elementwise",
    "general",
    "gru",
    "kernel_class",
    "lstm",
    "masks",
    "nonlinear",
    "normalize",
    "per_element",
    "pooling",
    "softmax",
    "statistics",
    "tdnn",
    "time_height_convolution",
]
