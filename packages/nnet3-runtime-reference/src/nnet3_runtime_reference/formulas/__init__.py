"""The formulas of the component types, by family."""

from nnet3_runtime_reference.formulas import (
    affine,
    attention,
    columns,
    composite,
    constants,
    convolution,
    dropout,
    elementwise,
    masks,
    nonlinear,
    normalize,
    per_element,
    pooling,
    recurrent,
    splicing,
    truncation,
)
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula, formula_of

FAMILIES = (
    affine,
    attention,
    columns,
    composite,
    constants,
    convolution,
    dropout,
    elementwise,
    masks,
    nonlinear,
    normalize,
    per_element,
    pooling,
    recurrent,
    splicing,
    truncation,
)
"""The modules; importing them registers their formulas."""

__all__ = ["FAMILIES", "Call", "Formula", "formula", "formula_of"]
