"""Translations of components into standard operators; importing the families registers them."""

from nnet3_runtime_onnx.components import rowwise, sequences
from nnet3_runtime_onnx.components.declaration import (
    Call,
    translate,
    translated_types,
    translates,
    why_not,
)

__all__ = [
    "Call",
    "rowwise",
    "sequences",
    "translate",
    "translated_types",
    "translates",
    "why_not",
]
