"""Components as calls of C functions."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
from nnet3_descriptors import components as types
from nnet3_descriptors.components import Component, ComponentProperties
from numpy.typing import NDArray

from nnet3_runtime_c.constants import PANEL, Constants, ConversionError, panels

Array = NDArray[Any]

_LARGEST = float(np.finfo(np.float32).max)
_LEAST_SCALE = 1e-4
"""The least size of a scale of ScaleAndOffsetComponent; the sign stays."""


@attrs.frozen
class Place:
    """A rectangle of the arena.

    Attributes:
        first: Its first element.
        rows, columns: Its size.
        stride: The distance of its rows.
    """

    first: int
    rows: int
    columns: int
    stride: int

    def __str__(self) -> str:
        """Its first element and the distance of its rows, as arguments in C."""
        return f"m + {self.first}, {self.stride}"

    def of_columns(self, begin: int, count: int) -> Place:
        """Some of its columns."""
        return attrs.evolve(self, first=self.first + begin, columns=count)


class Scratch:
    """Memory behind the matrices, for values inside of one command.

    Attributes:
        most: The most elements that a command needs.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._used = 0
        self.most = 0

    def new(self, rows: int, columns: int) -> Place:
        """A place for a matrix, until `clear`."""
        place = Place(self._first + self._used, rows, columns, columns)
        self._used += rows * columns
        self.most = max(self.most, self._used)
        return place

    def clear(self) -> None:
        """Gives all places back."""
        self._used = 0


@attrs.frozen(kw_only=True)
class Call:
    """What a command gives a component.

    Attributes:
        component: The component.
        name: Its name in the network.
        x: The input; without rows if the component needs none.
        y: The output.
        indexes: The precomputed indexes of the component; None for nothing.
        adds: Whether the result is added to the output.
        constants: Where weights and tables go.
        scratch: Memory for values in between.
    """

    component: Any
    name: str
    x: Place
    y: Place
    indexes: Any
    adds: bool
    constants: Constants
    scratch: Scratch

    def weights(self, field: str, make: Callable[[], Any]) -> int:
        """The place of a parameter, or of what is made of it, among the weights."""
        return self.constants.weights(f"{self.name}.{field}", make)

    def pointer(self, field: str, make: Callable[[], Any]) -> str:
        """The same as a pointer in C."""
        return f"w + {self.weights(field, make)}"

    def by_row(self, kernel: str, *arguments: object) -> Iterator[str]:
        """A call of a function of rows, columns, and input and output."""
        y = self.y
        yield self.constants.call(kernel, y.rows, y.columns, *arguments, self.x, y)

    def row_starts(self) -> list[int]:
        """The first element of the input, for each time offset, of the first row of the output."""
        return [int(row) * self.x.stride for row in self.indexes.row_offsets]


Statements = Iterator[str]
_CONVERSIONS: dict[type[Component], Callable[[Call], Statements]] = {}
_Conversion = Callable[[Call], Statements]


def _converts(*component_types: type[Component]) -> Callable[[_Conversion], _Conversion]:
    """Registers the conversion of component types."""

    def register(function: _Conversion) -> _Conversion:
        _CONVERSIONS.update(dict.fromkeys(component_types, function))
        return function

    return register


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
    if type(component) not in _CONVERSIONS:
        return "has no conversion here"
    names = "dropout_proportion", "specaugment_max_proportion", "zeroed_proportion"
    is_random = any(getattr(component, name, 0.0) != 0.0 for name in names)
    if is_random and not getattr(component, "test_mode", True):
        return "draws random numbers: set test mode"
    return ""


def statements(call: Call) -> Statements:
    """The statements that compute the output of a component."""
    adds = call.component.properties & ComponentProperties.PROPAGATE_ADDS
    if not call.adds or not adds or type(call.component) in _PRODUCTS:
        yield from _CONVERSIONS[type(call.component)](call)
        return
    found = call.scratch.new(call.y.rows, call.y.columns)
    yield from _CONVERSIONS[type(call.component)](attrs.evolve(call, y=found, adds=False))
    yield call.constants.call("add", found.rows, found.columns, 1.0, found, call.y)


# ---- products ----

Step = tuple[int, int, Array, int, int, int]
"""First element and columns of x; W (columns of y, columns of x); first column and columns of y;
the number of the weights: equal numbers have equal W."""


def _products(call: Call, steps: Sequence[Step], bias: Array | None, stride: int = 1) -> Statements:
    """The statements of products of parts of the columns.

    Args:
        call: The component.
        steps: The products; those of the same columns of y are added up.
        bias: What is added to the columns of y; None for nothing. Where it has fewer elements than
            there are columns, it is repeated.
        stride: The distance of the rows of the input that belong to rows of the output.
    """
    constants, x, y = call.constants, call.x, call.y
    table, set_columns = [], set[int]()
    for first, columns, matrix, begin, count, number in steps:
        place = call.weights(f"weights {number}", functools.partial(panels, matrix))
        adds = int(begin in set_columns or call.adds)
        offset = -1
        if bias is not None and begin not in set_columns:
            part = bias if len(bias) == count else bias[begin : begin + count]
            key = "bias" if len(bias) == count else f"bias {begin}"
            offset = call.weights(key, functools.partial(np.asarray, part))
        set_columns.add(begin)
        table.append((first, columns, place, columns * PANEL, offset, begin, count, adds))
    source = attrs.evolve(x, stride=x.stride * stride)
    if len(table) == 1:
        [(first, columns, place, ws, offset, begin, count, adds)] = table
        yield constants.call(
            "product", y.rows, columns, count, attrs.evolve(source, first=x.first + first),
            f"w + {place}", ws, "0" if offset < 0 else f"w + {offset}",
            y.of_columns(begin, count), adds,
        )  # fmt: skip
        return
    name = constants.table(table)
    yield constants.call("products", name, len(table), y.rows, source, "w", y)


@_converts(types.AffineComponent, types.NaturalGradientAffineComponent, types.FixedAffineComponent)
def _affine(call: Call) -> Statements:
    c = call.component
    step = (0, call.x.columns, c.linear_params, 0, call.y.columns, 0)
    yield from _products(call, [step], c.bias_params)


@_converts(types.LinearComponent)
def _linear(call: Call) -> Statements:
    yield from _products(
        call, [(0, call.x.columns, call.component.params, 0, call.y.columns, 0)], None
    )


@_converts(types.BlockAffineComponent)
def _block_affine(call: Call) -> Statements:
    c = call.component
    wide, high = call.x.columns // c.num_blocks, call.y.columns // c.num_blocks
    matrices = c.linear_params.reshape(c.num_blocks, high, wide)
    steps = [(k * wide, wide, matrix, k * high, high, k) for k, matrix in enumerate(matrices)]
    yield from _products(call, steps, c.bias_params)


@_converts(types.RepeatedAffineComponent, types.NaturalGradientRepeatedAffineComponent)
def _repeated_affine(call: Call) -> Statements:
    c = call.component
    high, wide = c.linear_params.shape
    steps = [(k * wide, wide, c.linear_params, k * high, high, 0) for k in range(c.num_repeats)]
    yield from _products(call, steps, c.bias_params)


@_converts(types.TdnnComponent)
def _tdnn(call: Call) -> Statements:
    c = call.component
    parts = np.split(c.linear_params, len(c.time_offsets), axis=1)
    steps = [
        (start, call.x.columns, part, 0, call.y.columns, number)
        for number, (start, part) in enumerate(zip(call.row_starts(), parts, strict=True))
    ]
    bias = c.bias_params if c.bias_params.size else None
    yield from _products(call, steps, bias, int(call.indexes.row_stride))


@_converts(types.TimeHeightConvolutionComponent)
def _time_height_convolution(call: Call) -> Statements:
    """Neighbouring heights of one time are one product."""
    c = call.component
    wide, high = c.num_filters_in, c.num_filters_out
    parts = np.split(c.linear_params, len(c.offsets), axis=1)
    starts = dict(zip(c.time_offsets, call.row_starts(), strict=True))
    numbers: dict[tuple[int, ...], int] = {}
    steps: list[Step] = []
    for height in range(c.height_out):
        seen = [
            (number, time, c.height_subsample_out * height + offset)
            for number, (time, offset) in enumerate(c.offsets)
            if 0 <= c.height_subsample_out * height + offset < c.height_in
        ]
        for run in _runs(seen):
            chosen = tuple(number for number, _, _ in run)
            _, time, first = run[0]
            matrix = np.concatenate([parts[number] for number in chosen], axis=1)
            number = numbers.setdefault(chosen, len(numbers))
            begin = starts[time] + first * wide
            steps.append((begin, wide * len(run), matrix, height * high, high, number))
    yield from _products(call, steps, c.bias_params, int(call.indexes.row_stride))


def _runs(seen: Sequence[tuple[int, int, int]]) -> Iterator[list[tuple[int, int, int]]]:
    """Groups (number, time, height) of one time at heights that follow one another."""
    run: list[tuple[int, int, int]] = []
    for each in seen:
        if run and (each[1], each[2]) != (run[-1][1], run[-1][2] + 1):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


@_converts(types.ConvolutionComponent)
def _convolution(call: Call) -> Statements:
    """Columns of the input that follow one another are one product."""
    c = call.component
    z, high = c.input_z_dim, c.num_filters
    filters = c.filter_params.reshape(high, c.filt_x_dim, c.filt_y_dim, z)
    steps: list[Step] = []
    out_x = (c.input_x_dim - c.filt_x_dim) // c.filt_x_step + 1
    out_y = (c.input_y_dim - c.filt_y_dim) // c.filt_y_step + 1
    for i, j in itertools.product(range(out_x), range(out_y)):
        begin = (i * out_y + j) * high
        for a in range(c.filt_x_dim):
            column, row = i * c.filt_x_step + a, j * c.filt_y_step
            if c.input_vectorization == "zyx":  # z fastest
                first = (column * c.input_y_dim + row) * z
                matrix = filters[:, a].reshape(high, -1)
                steps.append((first, c.filt_y_dim * z, matrix, begin, high, a))
                continue
            for k in range(z):
                first = (column * z + k) * c.input_y_dim + row
                matrix = filters[:, a, :, k]
                steps.append((first, c.filt_y_dim, matrix, begin, high, a * z + k))
    yield from _products(call, steps, c.bias_params)


# ---- functions of elements ----


@_converts(
    types.NoOpComponent,
    types.ClipGradientComponent,
    types.GeneralDropoutComponent,
    types.SpecAugmentTimeMaskComponent,
)
def _identity(call: Call) -> Statements:
    if call.x != call.y:
        yield from call.by_row("copy", 1.0)


@_converts(types.BackpropTruncationComponent)
def _truncation(call: Call) -> Statements:
    yield from call.by_row("copy", float(call.component.scale))


@_converts(types.DropoutComponent)
def _dropout(call: Call) -> Statements:
    yield from call.by_row("copy", 1.0 - float(call.component.dropout_proportion))


def _scaled(call: Call, scales: Any = None, offsets: Any = None) -> Statements:
    """y = s x + b; the numbers of a block hold for all blocks of the columns."""
    y = call.y
    pointers = [
        "0"
        if values is None
        else call.pointer(name, functools.partial(np.resize, values, y.columns))
        for name, values in (("scales", scales), ("offsets", offsets))
    ]
    yield call.constants.call("scale_offset", y.rows, y.columns, call.x, *pointers, y)


@_converts(
    types.FixedScaleComponent,
    types.PerElementScaleComponent,
    types.NaturalGradientPerElementScaleComponent,
)
def _scale(call: Call) -> Statements:
    yield from _scaled(call, scales=call.component.scales)


@_converts(types.FixedBiasComponent)
def _bias(call: Call) -> Statements:
    yield from _scaled(call, offsets=call.component.bias)


@_converts(types.PerElementOffsetComponent)
def _offset(call: Call) -> Statements:
    yield from _scaled(call, offsets=call.component.offsets)


@_converts(types.ScaleAndOffsetComponent)
def _scale_and_offset(call: Call) -> Statements:
    s = call.component.scales
    large = np.where(s < 0, np.minimum(s, -_LEAST_SCALE), np.maximum(s, _LEAST_SCALE))
    yield from _scaled(call, large, call.component.offsets)


@_converts(types.BatchNormComponent)
def _batch_norm(call: Call) -> Statements:
    c = call.component
    if c.test_mode:
        yield from _scaled(call, c.scale, c.offset)
        return
    blocks = call.y.columns // c.block_dim
    yield call.constants.call(
        "batch_norm", call.y.rows, blocks, c.block_dim, float(c.target_rms), float(c.epsilon),
        call.x, call.y,
    )  # fmt: skip


@_converts(types.RectifiedLinearComponent)
def _relu(call: Call) -> Statements:
    yield from call.by_row("relu")


@_converts(types.SigmoidComponent)
def _sigmoid(call: Call) -> Statements:
    yield from call.by_row("sigmoid")


@_converts(types.TanhComponent)
def _tanh(call: Call) -> Statements:
    yield from call.by_row("tanh")


@_converts(types.ConstantComponent, types.ConstantFunctionComponent)
def _constant(call: Call) -> Statements:
    row = call.pointer("output", lambda: call.component.output)
    yield call.constants.call("fill_rows", call.y.rows, call.y.columns, row, call.y)


@_converts(types.DropoutMaskComponent)
def _dropout_mask(call: Call) -> Statements:
    c = call.component
    value = 1.0 if c.continuous else 1.0 - float(c.dropout_proportion)
    yield call.constants.call("fill", call.y.rows, call.y.columns, value, call.y)


# ---- functions of rows ----


@_converts(types.SoftmaxComponent)
def _softmax(call: Call) -> Statements:
    y = call.y
    yield call.constants.call("softmax", y.rows, y.columns, call.x, y, 0)


@_converts(types.LogSoftmaxComponent)
def _log_softmax(call: Call) -> Statements:
    y = call.y
    yield call.constants.call("softmax", y.rows, y.columns, call.x, y, 1)


@_converts(types.NormalizeComponent)
def _normalize(call: Call) -> Statements:
    c = call.component
    factor = min(1.0 / float(c.block_dim * c.target_rms**2), _LARGEST)
    blocks = call.x.columns // c.block_dim
    yield call.constants.call(
        "normalize", call.y.rows, blocks, c.block_dim, factor, c.add_log_stddev,
        float(np.log(c.target_rms)), call.x, call.y,
    )  # fmt: skip


@_converts(types.PnormComponent)
def _pnorm(call: Call) -> Statements:
    yield from call.by_row("pnorm", call.x.columns // call.y.columns)


def _sums(call: Call, groups: Sequence[Array], scale: float = 1.0) -> Statements:
    splits = np.cumsum([0, *map(len, groups)])
    lists = call.constants.table(splits), call.constants.table(np.concatenate(groups))
    yield call.constants.call(
        "sum_columns", call.y.rows, len(groups), *lists, scale, call.x, call.y
    )


@_converts(types.SumGroupComponent)
def _sum_group(call: Call) -> Statements:
    ends = np.cumsum(call.component.sizes)
    yield from _sums(call, np.split(np.arange(call.x.columns), ends[:-1]))


@_converts(types.SumBlockComponent)
def _sum_block(call: Call) -> Statements:
    blocks = np.arange(call.x.columns).reshape(-1, call.y.columns)
    yield from _sums(call, list(blocks.T), float(call.component.scale))


@_converts(types.PermuteComponent)
def _permute(call: Call) -> Statements:
    yield from _sums(call, list(np.asarray(call.component.column_map).reshape(-1, 1)))


@_converts(types.MaxpoolingComponent)
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


@_converts(types.ElementwiseProductComponent)
def _elementwise_product(call: Call) -> Statements:
    yield from call.by_row("multiply_blocks", call.x.columns // call.y.columns)


@_converts(types.DistributeComponent)
def _distribute(call: Call) -> Statements:
    per_row, rest = divmod(call.x.columns, call.y.columns)
    assert not rest
    row, block = np.divmod(np.asarray(call.indexes.source_blocks, np.int64), per_row)
    name = call.constants.table(row * call.x.stride + block * call.y.columns)
    yield call.constants.call(
        "gather", call.y.rows, call.y.columns, 1.0, f"m + {call.x.first}", name, call.y, 0
    )


# ---- functions of several times, recurrences ----


@_converts(types.StatisticsExtractionComponent)
def _statistics_extraction(call: Call) -> Statements:
    name = call.constants.table(np.asarray(call.indexes.forward_indexes))
    squares = call.component.include_variance
    yield call.constants.call(
        "statistics", call.y.rows, call.x.columns, squares, name, call.x, call.y
    )


@_converts(types.StatisticsPoolingComponent)
def _statistics_pooling(call: Call) -> Statements:
    c, sums = call.component, call.x.columns - 1
    name = call.constants.table(np.asarray(call.indexes.forward_indexes))
    columns = sums // 2 if c.output_stddevs else sums
    yield call.constants.call(
        "pooling", call.y.rows, columns, c.num_log_count_features, c.output_stddevs,
        float(c.variance_floor), name, call.x, call.y,
    )  # fmt: skip


@_converts(types.RestrictedAttentionComponent)
def _attention(call: Call) -> Statements:
    c = call.component
    rows = call.constants.table(np.asarray(call.indexes.row_offsets))
    here = int(call.indexes.row_offsets[c.num_left_inputs])
    yield call.constants.call(
        "attention", call.y.rows, c.num_heads, c.key_dim, c.value_dim, c.context_dim,
        c.output_context, float(c.key_scale), int(call.indexes.row_stride), rows, here, call.x,
        call.y,
    )  # fmt: skip


@_converts(types.LstmNonlinearityComponent)
def _lstm(call: Call) -> Statements:
    c = call.component
    weights = call.pointer("params", lambda: c.params)
    yield call.constants.call(
        "lstm", call.y.rows, c.cell_dim, c.use_dropout, weights, call.x, call.y
    )


@_converts(types.GruNonlinearityComponent)
def _gru(call: Call) -> Statements:
    c, x, y = call.component, call.x, call.y
    cell, recurrent = c.cell_dim, c.recurrent_dim
    gated, product = call.scratch.new(y.rows, recurrent), call.scratch.new(y.rows, cell)
    r, s = x.first + cell, x.first + x.columns - recurrent
    yield call.constants.call("gated", y.rows, recurrent, f"m + {r}", f"m + {s}, {x.stride}", gated)
    yield from _products(
        attrs.evolve(call, x=gated, y=product, adds=False),
        [(0, recurrent, c.w_h, 0, cell, 0)],
        None,
    )
    p = x.first + cell + recurrent
    yield call.constants.call(
        "gru", y.rows, cell, f"m + {x.first}", f"m + {p}", f"m + {p + cell}, {x.stride}", product,
        "0", y,
    )  # fmt: skip


@_converts(types.OutputGruNonlinearityComponent)
def _output_gru(call: Call) -> Statements:
    c, x, y = call.component, call.x, call.y
    p = x.first + c.cell_dim
    before = f"m + {p + c.cell_dim}, {x.stride}"
    yield call.constants.call(
        "gru", y.rows, c.cell_dim, f"m + {x.first}", f"m + {p}", before, "0, 0",
        call.pointer("w_h", lambda: c.w_h), y,
    )  # fmt: skip


@_converts(types.CompositeComponent)
def _composite(call: Call) -> Statements:
    """The parts one after the other, for all rows at a time."""
    x, parts = call.x, call.component.components
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        y = call.y if is_last else call.scratch.new(x.rows, part.output_dim)
        this = attrs.evolve(
            call, component=part, name=f"{call.name}.{number}", x=x, y=y, indexes=None, adds=False
        )
        yield from _CONVERSIONS[type(part)](this)
        x = y


_PRODUCTS = (
    types.AffineComponent,
    types.NaturalGradientAffineComponent,
    types.FixedAffineComponent,
    types.LinearComponent,
    types.BlockAffineComponent,
    types.RepeatedAffineComponent,
    types.NaturalGradientRepeatedAffineComponent,
    types.TdnnComponent,
    types.TimeHeightConvolutionComponent,
    types.ConvolutionComponent,
)
"""Types whose products can be added where they are stored."""

__all__ = ["Call", "ConversionError", "Place", "Scratch", "statements", "why_not"]
