"""Translations of components into standard operators, by family."""

from nnet3_runtime_onnx.components import (
    affine,
    columns,
    composite,
    images,
    masks,
    per_element,
    recurrent,
    rows,
    times,
)
from nnet3_runtime_onnx.components.declaration import (
    Call,
    translate,
    translated_types,
    translates,
    why_not,
)

FAMILIES = (
    affine,
    columns,
    composite,
    images,
    masks,
    per_element,
    recurrent,
    rows,
    times,
)
"""The modules; importing them registers their translations."""

__all__ = ["FAMILIES", "Call", "translate", "translated_types", "translates", "why_not"]
