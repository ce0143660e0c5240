"""The type in standard operators, for nnet3-runtime-onnx."""

from __future__ import annotations

from nnet3_runtime_onnx.components import Call, translates
from nnet3_runtime_onnx.graph import Tensor

from nnet3_delta.component import DeltaComponent


@translates(DeltaComponent)
def delta(call: Call) -> Tensor:
    """y(t) = scale (x(t + offset) - x(t - offset))."""
    difference = call.spliced([call.indexes.later]) - call.spliced([call.indexes.earlier])
    return difference * float(call.component.scale)
