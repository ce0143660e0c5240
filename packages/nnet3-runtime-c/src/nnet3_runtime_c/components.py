"""Components as calls of C functions: which can be converted, and their statements.

Affine maps and convolutions are in `products`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from nnet3_descriptors import components as types
from nnet3_descriptors.components import Component

from nnet3_runtime_c.calls import CONVERSIONS, Array, Call, Statements, converts
from nnet3_runtime_c.products import PRODUCTS, product

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
        yield call.statement("copy", call.y.columns, 1.0, call.x, call.y)


@converts(types.BackpropTruncationComponent)
def _truncation(call: Call) -> Statements:
    yield call.statement("copy", call.y.columns, float(call.component.scale), call.x, call.y)


@converts(types.DropoutComponent)
def _dropout(call: Call) -> Statements:
    kept = 1.0 - float(call.component.dropout_proportion)
    yield call.statement("copy", call.y.columns, kept, call.x, call.y)


_OF_ELEMENTS: dict[type[Component], str] = {
    types.RectifiedLinearComponent: "relu",
    types.SigmoidComponent: "sigmoid",
    types.TanhComponent: "tanh",
}


@converts(*_OF_ELEMENTS)
def _of_elements(call: Call) -> Statements:
    kernel = _OF_ELEMENTS[type(call.component)]
    yield call.statement(kernel, call.y.columns, call.x, call.y)


_OF_BLOCKS: dict[type[Component], str] = {
    types.PnormComponent: "pnorm",
    types.ElementwiseProductComponent: "multiply_blocks",
}


@converts(*_OF_BLOCKS)
def _of_blocks(call: Call) -> Statements:
    kernel, columns = _OF_BLOCKS[type(call.component)], call.y.columns
    yield call.statement(kernel, columns, call.x.columns // columns, call.x, call.y)


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
        yield call.statement(
            "batch_norm", y.columns // c.block_dim, c.block_dim, float(c.target_rms),
            float(c.epsilon), call.x, y,
        )  # fmt: skip
        return
    pointers = [
        "0"
        if values is None
        else call.pointer(name, functools.partial(np.resize, values, y.columns))
        for name, values in zip(("scales", "offsets"), found, strict=True)
    ]
    yield call.statement("scale_offset", y.columns, call.x, *pointers, y)


@converts(types.ConstantComponent, types.ConstantFunctionComponent)
def _constant(call: Call) -> Statements:
    row = call.pointer("output", lambda: call.component.output)
    yield call.statement("fill_rows", call.y.columns, row, call.y)


@converts(types.DropoutMaskComponent)
def _dropout_mask(call: Call) -> Statements:
    c = call.component
    value = 1.0 if c.continuous else 1.0 - float(c.dropout_proportion)
    yield call.statement("fill", call.y.columns, value, call.y)


@converts(types.SoftmaxComponent, types.LogSoftmaxComponent)
def _softmax(call: Call) -> Statements:
    is_logarithm = isinstance(call.component, types.LogSoftmaxComponent)
    yield call.statement("softmax", call.y.columns, call.x, call.y, is_logarithm)


@converts(types.NormalizeComponent)
def _normalize(call: Call) -> Statements:
    c = call.component
    factor = min(1.0 / float(c.block_dim * c.target_rms**2), _LARGEST)
    blocks = call.x.columns // c.block_dim
    yield call.statement(
        "normalize", blocks, c.block_dim, factor, c.add_log_stddev,
        float(np.log(c.target_rms)), call.x, call.y,
    )  # fmt: skip


def _sums(call: Call, groups: Sequence[Array], scale: float = 1.0) -> Statements:
    splits = np.cumsum([0, *map(len, groups)])
    lists = call.table(splits), call.table(np.concatenate(groups))
    yield call.statement("sum_columns", len(groups), *lists, scale, call.x, call.y)


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
    name = call.table(windows.reshape(-1))
    yield call.statement("max_columns", call.y.columns, size, name, call.x, call.y)


@converts(types.DistributeComponent)
def _distribute(call: Call) -> Statements:
    per_row, rest = divmod(call.x.columns, call.y.columns)
    assert not rest
    row, block = np.divmod(np.asarray(call.indexes.source_blocks, np.int64), per_row)
    name = call.table(row * call.x.stride + block * call.y.columns)
    yield call.statement("gather", call.y.columns, 1.0, f"m + {call.x.first}", name, call.y, 0)


@converts(types.StatisticsExtractionComponent)
def _statistics_extraction(call: Call) -> Statements:
    name = call.table(np.asarray(call.indexes.forward_indexes))
    squares = call.component.include_variance
    yield call.statement("statistics", call.x.columns, squares, name, call.x, call.y)


@converts(types.StatisticsPoolingComponent)
def _statistics_pooling(call: Call) -> Statements:
    c, sums = call.component, call.x.columns - 1
    name = call.table(np.asarray(call.indexes.forward_indexes))
    columns = sums // 2 if c.output_stddevs else sums
    yield call.statement(
        "pooling", columns, c.num_log_count_features, c.output_stddevs,
        float(c.variance_floor), name, call.x, call.y,
    )  # fmt: skip


@converts(types.RestrictedAttentionComponent)
def _attention(call: Call) -> Statements:
    c = call.component
    rows = call.table(np.asarray(call.indexes.row_offsets))
    here = int(call.indexes.row_offsets[c.num_left_inputs])
    yield call.statement(
        "attention", c.num_heads, c.key_dim, c.value_dim, c.context_dim,
        c.output_context, float(c.key_scale), int(call.indexes.row_stride), rows, here, call.x,
        call.y,
    )  # fmt: skip


@converts(types.LstmNonlinearityComponent)
def _lstm(call: Call) -> Statements:
    c = call.component
    weights = call.pointer("params", lambda: c.params)
    yield call.statement("lstm", c.cell_dim, c.use_dropout, weights, call.x, call.y)


@converts(types.GruNonlinearityComponent)
def _gru(call: Call) -> Statements:
    c, x, y = call.component, call.x, call.y
    cell, recurrent = c.cell_dim, c.recurrent_dim
    gated, more = call.resources.new(y.rows, recurrent), call.resources.new(y.rows, cell)
    r, s = x.first + cell, x.first + x.columns - recurrent
    yield call.statement("gated", recurrent, f"m + {r}", f"m + {s}, {x.stride}", gated)
    inside = call._replace(x=gated, y=more, adds=False)
    yield from product(inside, c.w_h, None)
    p = x.first + cell + recurrent
    yield call.statement(
        "gru", cell, f"m + {x.first}", f"m + {p}", f"m + {p + cell}, {x.stride}", more, y
    )


@converts(types.OutputGruNonlinearityComponent)
def _output_gru(call: Call) -> Statements:
    c, x, y = call.component, call.x, call.y
    p = x.first + c.cell_dim
    before = f"m + {p + c.cell_dim}, {x.stride}"
    yield call.statement(
        "gru", c.cell_dim, f"m + {x.first}", f"m + {p}", before,
        call.pointer("w_h", lambda: c.w_h), 0, y,
    )  # fmt: skip


@converts(types.CompositeComponent)
def _composite(call: Call) -> Statements:
    """The parts one after the other, for all rows at a time.

    The name of a part is none that another component can have.
    """
    x, parts = call.x, call.component.components
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        y = call.y if is_last else call.resources.new(x.rows, part.output_dim)
        this = call._replace(
            component=part, name=f"{call.name}#{number}", x=x, y=y, indexes=None, adds=False
        )
        yield from CONVERSIONS[type(part)](this)
        x = y


def why_not(component: Component) -> str:
    """Why a component cannot be expressed; "" if it can."""
    if isinstance(component, types.CompositeComponent):
        if any(
            isinstance(each, types.BatchNormComponent) and not each.test_mode
            for each in component.components
        ):
            return "normalizes by some rows of the minibatch: set test mode"
        parts = ((number, why_not(part)) for number, part in enumerate(component.components))
        return next((f"has a part {number} that {why}" for number, why in parts if why), "")
    if type(component) not in CONVERSIONS:
        return "has no conversion here"
    names = "dropout_proportion", "specaugment_max_proportion", "zeroed_proportion"
    is_random = any(getattr(component, name, 0.0) != 0.0 for name in names)
    if is_random and not getattr(component, "test_mode", True):
        return "draws random numbers: set test mode"
    return ""


def statements(call: Call) -> Statements:
    """The statements that compute the output of a component."""
    convert = CONVERSIONS[type(call.component)]
    if not call.adds or type(call.component) in PRODUCTS:
        yield from convert(call)
        return
    found = call.resources.new(call.y.rows, call.y.columns)
    yield from convert(call._replace(y=found, adds=False))
    yield call.statement("add", found.columns, 1.0, found, call.y)


def joined(call: Call, component: Component, name: str) -> Call | None:
    """The call of a product that does the work of the component behind it, too.

    Args:
        call: The product, perhaps with an end.
        component: The component, which reads all of the output of the product, and replaces it.
        name: Its name.

    Returns:
        None if it cannot: an `End` is a rectifier, then a scale and an offset of each column.
    """
    if type(call.component) not in PRODUCTS:
        return None
    end = call.end
    if type(component) in IDENTITIES:
        return call
    if end.scales is not None or end.offsets is not None:
        return None
    if isinstance(component, types.RectifiedLinearComponent) and not end.relu:
        return call._replace(end=end._replace(relu=True))
    found = scale_and_offset(component)
    if found is None:
        return None
    scales, offsets = found
    return call._replace(end=end._replace(scales=scales, offsets=offsets, name=name))
