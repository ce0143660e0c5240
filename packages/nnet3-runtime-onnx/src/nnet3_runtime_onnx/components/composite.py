"""A sequence of components as one component."""

from typing import Any

import attrs
import numpy as np
from nnet3_descriptors.components import BatchNormComponent, CompositeComponent

from nnet3_runtime_onnx.components.declaration import Call, translate, translates, why_not
from nnet3_runtime_onnx.graph import Tensor, concat
from nnet3_runtime_onnx.matrices import Region


def _why_not(component: Any) -> str:
    for number, part in enumerate(component.components):
        reason = why_not(part)
        if reason:
            return f"has a part {number} of type {part.type} that {reason}"
    return ""


@translates(CompositeComponent, refuses=_why_not)
def composite(call: Call) -> Tensor | Region:
    """y = f_n(... f_2(f_1(x))), for max_rows_process rows at a time if parts use all rows."""
    rows, parts = call.region.rows, call.component.components
    step = call.component.max_rows_process
    if step <= 0 or not any(_depends_on_other_rows(part) for part in parts):
        step = rows
    if step >= rows:
        return _of_rows(call, call.region)
    pieces = [np.arange(begin, min(begin + step, rows)) for begin in range(0, rows, step)]
    outputs = [_of_rows(call, call.region.take(piece)) for piece in pieces]
    return concat([call.matrices.tensor(each) for each in outputs], axis=-2)


def _depends_on_other_rows(component: Any) -> bool:
    return isinstance(component, BatchNormComponent) and not component.test_mode


def _of_rows(call: Call, region: Region) -> Region:
    """Returns the output of all parts, one after the other, for some rows."""
    for number, part in enumerate(call.component.components):
        this = attrs.evolve(
            call,
            component=part,
            name=f"{call.name}.{number}",
            region=region,
            rows_out=region.rows,
        )
        region = translate(this)
    return region
