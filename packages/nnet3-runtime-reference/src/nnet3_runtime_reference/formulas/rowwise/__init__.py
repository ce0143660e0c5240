"""Formulas whose rows of output come from the same row of the input, most of them."""

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
