"""Functions of single elements, and of single rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from nnet3_descriptors import components as types
from nnet3_descriptors.components import Component

from nnet3_runtime_c.calls import Array, Call, Statements, converts

_LARGEST = float(np.finfo(np.float32).max)
_LEAST_SCALE = 1e-4
"""The least size of a scale of ScaleAndOffsetComponent; the sign stays."""

IDENTITIES = (
    types.NoOpComponent,
    types.ClipGradientComponent,
    types.GeneralDropoutComponent,
    types.SpecAugmentTimeMaskComponent,
)


@converts(*IDENTITIES)
def _identity(call: Call) -> Statements:
    if call.x != call.y:
        yield from call.by_row("copy", 1.0)


@converts(types.BackpropTruncationComponent)
def _truncation(call: Call) -> Statements:
    yield from call.by_row("copy", float(call.component.scale))


@converts(types.DropoutComponent)
def _dropout(call: Call) -> Statements:
    yield from call.by_row("copy", 1.0 - float(call.component.dropout_proportion))


def scale_and_offset(component: Component) -> tuple[Array | None, Array | None] | None:
    """s and b of a component that computes y = s x + b, for columns or blocks of them, or None."""
    c: Any = component
    if type(c) in _SCALES:
        return c.scales, None
    if isinstance(c, types.FixedBiasComponent):
        return None, c.bias
    if isinstance(c, types.PerElementOffsetComponent):
        return None, c.offsets
    if isinstance(c, types.ScaleAndOffsetComponent):
        s = c.scales
        large = np.where(s < 0, np.minimum(s, -_LEAST_SCALE), np.maximum(s, _LEAST_SCALE))
        return large, c.offsets
    if isinstance(c, types.BatchNormComponent) and c.test_mode:
        return c.scale, c.offset
    return None


_SCALES = (
    types.FixedScaleComponent,
    types.PerElementScaleComponent,
    types.NaturalGradientPerElementScaleComponent,
)


@converts(
    *_SCALES,
    types.FixedBiasComponent,
    types.PerElementOffsetComponent,
    types.ScaleAndOffsetComponent,
    types.BatchNormComponent,
)
def _scale_and_offset(call: Call) -> Statements:
    c, y = call.component, call.y
    found = scale_and_offset(c)
    if found is None:
        yield call.constants.call(
            "batch_norm", y.rows, y.columns // c.block_dim, c.block_dim, float(c.target_rms),
            float(c.epsilon), call.x, y,
        )  # fmt: skip
        return
    pointers = [
        "0"
        if values is None
        else call.pointer(name, functools.partial(np.resize, values, y.columns))
        for name, values in zip(("scales", "offsets"), found, strict=True)
    ]
    yield call.constants.call("scale_offset", y.rows, y.columns, call.x, *pointers, y)


@converts(types.RectifiedLinearComponent)
def _relu(call: Call) -> Statements:
    yield from call.by_row("relu")


@converts(types.SigmoidComponent)
def _sigmoid(call: Call) -> Statements:
    yield from call.by_row("sigmoid")


@converts(types.TanhComponent)
def _tanh(call: Call) -> Statements:
    yield from call.by_row("tanh")


@converts(types.ConstantComponent, types.ConstantFunctionComponent)
def _constant(call: Call) -> Statements:
    row = call.pointer("output", lambda: call.component.output)
    yield call.constants.call("fill_rows", call.y.rows, call.y.columns, row, call.y)


@converts(types.DropoutMaskComponent)
def _dropout_mask(call: Call) -> Statements:
    c = call.component
    value = 1.0 if c.continuous else 1.0 - float(c.dropout_proportion)
    yield call.constants.call("fill", call.y.rows, call.y.columns, value, call.y)


@converts(types.SoftmaxComponent)
def _softmax(call: Call) -> Statements:
    y = call.y
    yield call.constants.call("softmax", y.rows, y.columns, call.x, y, 0)


@converts(types.LogSoftmaxComponent)
def _log_softmax(call: Call) -> Statements:
    y = call.y
    yield call.constants.call("softmax", y.rows, y.columns, call.x, y, 1)


@converts(types.NormalizeComponent)
def _normalize(call: Call) -> Statements:
    c = call.component
    factor = min(1.0 / float(c.block_dim * c.target_rms**2), _LARGEST)
    blocks = call.x.columns // c.block_dim
    yield call.constants.call(
        "normalize", call.y.rows, blocks, c.block_dim, factor, c.add_log_stddev,
        float(np.log(c.target_rms)), call.x, call.y,
    )  # fmt: skip


@converts(types.PnormComponent)
def _pnorm(call: Call) -> Statements:
    yield from call.by_row("pnorm", call.x.columns // call.y.columns)


def _sums(call: Call, groups: Sequence[Array], scale: float = 1.0) -> Statements:
    splits = np.cumsum([0, *map(len, groups)])
    lists = call.constants.table(splits), call.constants.table(np.concatenate(groups))
    yield call.constants.call(
        "sum_columns", call.y.rows, len(groups), *lists, scale, call.x, call.y
    )


@converts(types.SumGroupComponent)
def _sum_group(call: Call) -> Statements:
    ends = np.cumsum(call.component.sizes)
    yield from _sums(call, np.split(np.arange(call.x.columns), ends[:-1]))


@converts(types.SumBlockComponent)
def _sum_block(call: Call) -> Statements:
    blocks = np.arange(call.x.columns).reshape(-1, call.y.columns)
    yield from _sums(call, list(blocks.T), float(call.component.scale))


@converts(types.PermuteComponent)
def _permute(call: Call) -> Statements:
    yield from _sums(call, list(np.asarray(call.component.column_map).reshape(-1, 1)))


@converts(types.MaxpoolingComponent)
def _maxpooling(call: Call) -> Statements:
    c = call.component
    columns = np.arange(call.x.columns).reshape(c.input_x_dim, c.input_y_dim, c.input_z_dim)
    sizes = c.pool_x_size, c.pool_y_size, c.pool_z_size
    windows = np.lib.stride_tricks.sliding_window_view(columns, sizes)
    windows = windows[:: c.pool_x_step, :: c.pool_y_step, :: c.pool_z_step]
    size = int(np.prod(sizes))
    name = call.constants.table(windows.reshape(-1))
    yield call.constants.call(
        "max_columns", call.y.rows, call.y.columns, size, name, call.x, call.y
    )


@converts(types.ElementwiseProductComponent)
def _elementwise_product(call: Call) -> Statements:
    yield from call.by_row("multiply_blocks", call.x.columns // call.y.columns)


@converts(types.DistributeComponent)
def _distribute(call: Call) -> Statements:
    per_row, rest = divmod(call.x.columns, call.y.columns)
    assert not rest
    row, block = np.divmod(np.asarray(call.indexes.source_blocks, np.int64), per_row)
    name = call.constants.table(row * call.x.stride + block * call.y.columns)
    yield call.constants.call(
        "gather", call.y.rows, call.y.columns, 1.0, f"m + {call.x.first}", name, call.y, 0
    )
