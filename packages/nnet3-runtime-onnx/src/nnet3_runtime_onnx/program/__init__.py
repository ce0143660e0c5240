"""The commands of a computation: those of one model, and the nodes for each command."""

from nnet3_runtime_onnx.program.commands import Exchange, Translator, refusals
from nnet3_runtime_onnx.program.parts import Part, Parts, RowUse, State, with_rows_that_matter

__all__ = [
    "Exchange",
    "Part",
    "Parts",
    "RowUse",
    "State",
    "Translator",
    "refusals",
    "with_rows_that_matter",
]
