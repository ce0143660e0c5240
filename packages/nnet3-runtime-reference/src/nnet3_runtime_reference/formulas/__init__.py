"""The formulas of the component types, by family; importing the families registers them.

linear.py       affine maps, scales, offsets, products and sums of columns
nonlinear.py    nonlinear functions of a row, and normalization
masks.py        constants, dropout, masks of time
convolution.py  over time, or over the axes that columns stand for; pooling
recurrent.py    gates and cells of LSTM and GRU
sequences.py    attention, limits of derivatives, components in sequence
formula.py      the base class of formulas
"""

from nnet3_runtime_reference.formulas import (
    convolution,
    linear,
    masks,
    nonlinear,
    recurrent,
    sequences,
)
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula, formula_of

__all__ = [
    "Call",
    "Formula",
    "convolution",
    "formula",
    "formula_of",
    "linear",
    "masks",
    "nonlinear",
    "recurrent",
    "sequences",
]
