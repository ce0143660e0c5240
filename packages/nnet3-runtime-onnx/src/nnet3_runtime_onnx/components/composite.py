"""Components in a row that are one component."""

from typing import Any

import attrs
from nnet3_descriptors.components import BatchNormComponent, CompositeComponent

from nnet3_runtime_onnx.components.declaration import Call, translate, translates, why_not
from nnet3_runtime_onnx.graph import Tensor


def _why_not(component: Any) -> str:
    for number, part in enumerate(component.components):
        reason = why_not(part)
        if isinstance(part, BatchNormComponent) and not part.test_mode:
            reason = "normalizes max_rows_process rows at a time: set test mode"
        if reason:
            return f"has a part {number} of type {part.type} that {reason}"
    return ""


@translates(CompositeComponent, refuses=_why_not)
def composite(call: Call) -> Tensor:
    """y = f_n(... f_2(f_1(x)))."""
    region = call.region
    for number, part in enumerate(call.component.components):
        this = attrs.evolve(call, component=part, name=f"{call.name}.{number}", region=region)
        y = translate(this)
        region = call.matrices.region_of(y)
    return y
