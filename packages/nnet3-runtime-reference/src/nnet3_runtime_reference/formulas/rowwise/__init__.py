"""Formulas; most of them compute a row of the output from the same row of the input."""

from nnet3_runtime_reference.formulas.rowwise import (
    affine,
    columns,
    constants,
    dropout,
    elementwise,
    masks,
    nonlinear,
    normalize,
    per_element,
)

__all__ = [
    "affine",
    "columns",
    "constants",
    "dropout",
    "elementwise",
    "masks",
    "nonlinear",
    "normalize",
    "per_element",
]
