"""The formulas of the component types, by family; importing the families registers them.

rowwise/      a row of output from the same row of the input
convolution/  over time, or over the axes that columns stand for
sequences/    attention, recurrences, limits of derivatives
composite.py  a sequence of components as one component
formula.py    the base class of formulas
"""

from nnet3_runtime_reference.formulas import composite, convolution, rowwise, sequences
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula, formula_of

__all__ = [
    "Call",
    "Formula",
    "composite",
    "convolution",
    "formula",
    "formula_of",
    "rowwise",
    "sequences",
]
