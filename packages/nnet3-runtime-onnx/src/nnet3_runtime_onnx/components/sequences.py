"""Functions of several rows or times, gates of recurrences, and components in sequence.

For convolutions and pooling, rows, or all rows together, are images.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import attrs
import numpy as np
from nnet3_descriptors import components

from nnet3_runtime_onnx.components.declaration import Array, Call, translate, translates, why_not
from nnet3_runtime_onnx.graph import Tensor, concat
from nnet3_runtime_onnx.matrices import Region, sums_of_ranges


@translates(components.TimeHeightConvolutionComponent)
def time_height_convolution(call: Call) -> Tensor:
    """y(t, h) = b + sum over k of W_k x(t + time offset k, s h + height offset k).

    Rows are the first axis of an image and heights the second: a filter sees rows that are equally
    far from each other, as times are. Where offsets leave gaps, the filter is 0. Rows of zeros
    before the first and behind the last become padding.
    """
    c = call.component
    first, gap, taps = _progression(call.indexes.row_offsets)
    places = ".".join(map(str, call.indexes.row_offsets))
    stride = int(call.indexes.row_stride)
    lowest = min(0, *(height for _, height in c.offsets))
    heights = max(height for _, height in c.offsets) - lowest + 1

    def filters() -> Array:
        w = np.zeros((c.num_filters_out, c.num_filters_in, taps, heights), np.float32)
        parts = np.split(c.linear_params, len(c.offsets), axis=1)
        for (time, height), part in zip(c.offsets, parts, strict=True):
            row = int(call.indexes.row_offsets[c.time_offsets.index(time)])
            w[:, :, (row - first) // gap, height - lowest] = part
        return w

    rows = gap * (taps - 1) + stride * (call.rows_out - 1) + 1
    given, (before, behind) = _without_zeros_around(
        call.region.take(np.arange(first, first + rows))
    )
    x = call.matrices.tensor(given)
    image = x.image
    if image is None or image.shape[1:] != (c.num_filters_in, given.rows, c.height_in):
        image = x.as_images(given.rows, c.height_in, c.num_filters_in).transpose(0, 3, 1, 2)
    below = c.height_subsample_out * (c.height_out - 1) + lowest + heights - c.height_in
    y = image.convolve(
        call.derived(f"filters.{places}", filters),
        call.parameter("bias_params"),
        strides=(stride, c.height_subsample_out),
        dilations=(gap, 1),
        pads=(before, -lowest, behind, max(below, 0)),
    )
    return y.slice(range(c.height_out)).as_rows_of_image(call.rows_out, c.output_dim)


def _without_zeros_around(region: Region) -> tuple[Region, tuple[int, int]]:
    """Returns the rows between the first and the last that is not zero, and how many are not.

    Returns:
        The rows, all if there are only zeros; how many are before them, and how many behind.
    """
    rows = np.flatnonzero(~region.is_zero)
    if not len(rows):
        return region, (0, 0)
    first, last = int(rows[0]), int(rows[-1])
    return region.take(np.arange(first, last + 1)), (first, region.rows - 1 - last)


def _progression(offsets: Array) -> tuple[int, int, int]:
    """Returns the first of some numbers, the distance of a progression with all, and its length."""
    numbers = sorted(set(np.asarray(offsets).tolist()))
    first = numbers[0]
    gap = math.gcd(*(number - first for number in numbers)) or 1
    return first, gap, (numbers[-1] - first) // gap + 1


@translates(components.ConvolutionComponent)
def convolution(call: Call) -> Tensor:
    """y(i, j) = b + sum over a, b of W(a, b) x(i step_x + a, j step_y + b), for each row."""
    c = call.component
    if c.input_vectorization == "zyx":  # z fastest
        x = call.x.as_images(c.input_x_dim, c.input_y_dim, c.input_z_dim).transpose(0, 3, 1, 2)
    else:
        x = call.x.as_images(c.input_x_dim, c.input_z_dim, c.input_y_dim).transpose(0, 2, 1, 3)

    def filters() -> Array:
        shape = (-1, c.filt_x_dim, c.filt_y_dim, c.input_z_dim)
        w: Array = c.filter_params.reshape(shape).transpose(0, 3, 1, 2)
        return w

    y = x.convolve(
        call.derived("filters", filters),
        call.parameter("bias_params"),
        strides=(c.filt_x_step, c.filt_y_step),
    )
    return y.transpose(0, 2, 3, 1).as_rows(call.rows_out, c.output_dim)


@translates(components.MaxpoolingComponent)
def maxpooling(call: Call) -> Tensor:
    """y(i, j, k) = the greatest x(i step_x + a, j step_y + b, k step_z + c), for each row."""
    c = call.component
    x = call.x.as_images(1, c.input_x_dim, c.input_y_dim, c.input_z_dim)
    y = x.pool_max(
        sizes=(c.pool_x_size, c.pool_y_size, c.pool_z_size),
        strides=(c.pool_x_step, c.pool_y_step, c.pool_z_step),
    )
    return y.as_rows(call.rows_out, c.output_dim)


@translates(components.RestrictedAttentionComponent)
def restricted_attention(call: Call) -> Tensor:
    """y(t) = sum over j of c_j(t) v(t + s j); c = softmax over j of a q(t) . k(t + s j) + b_j(t).

    For each head the columns of the input are key k, value v, query q and biases b.
    """
    c, rows = call.component, call.rows_out
    ends = list(itertools.accumulate((c.key_dim, c.value_dim, c.key_dim, c.context_dim), initial=0))
    keys, values, queries, biases = itertools.pairwise(ends)
    window = np.stack([call.rows_at(j) for j in range(c.context_dim)], axis=1).reshape(-1)
    here = call.rows_at(c.num_left_inputs)

    def heads(numbers: Array, columns: tuple[int, int], per_row: int) -> Tensor:
        """(rows, heads, per_row, columns of each head)."""
        x = call.matrices.tensor(call.region.take(numbers)).reshape(
            rows, per_row, c.num_heads, ends[-1]
        )
        return x.slice(range(*columns)).transpose(0, 2, 1, 3)

    logits = heads(here, queries, 1) @ heads(window, keys, c.context_dim).transpose(0, 1, 3, 2)
    logits = logits * float(c.key_scale) + heads(here, biases, 1)
    weights = logits.apply("Softmax", axis=-1)
    y = weights @ heads(window, values, c.context_dim)
    if c.output_context:
        y = concat([y, weights], axis=-1)
    return y.reshape(rows, c.output_dim)


@translates(components.StatisticsExtractionComponent)
def statistics_extraction(call: Call) -> Region:
    """y = (n, sum of x, sum of x^2) over the n rows of a period; x^2 with include_variance only."""
    ranges = np.asarray(call.indexes.forward_indexes)
    counts = call.matrices.region_of(call.numbers(ranges[:, 1] - ranges[:, 0]))
    parts = [counts, sums_of_ranges(call.matrices, call.region, ranges)]
    if call.component.include_variance:
        squares = call.matrices.region_of(call.x * call.x)
        parts.append(sums_of_ranges(call.matrices, squares, ranges))
    return Region.side_by_side(parts)


@translates(components.StatisticsPoolingComponent)
def statistics_pooling(call: Call) -> Region:
    """y = (log n, m, sqrt(max(q - m^2, floor))): the mean m and the standard deviation in a window.

    x has a count, sums and sums of squares. Without output_stddevs, y is log n and all columns of x
    after the count, divided by n.
    """
    c = call.component
    ranges = np.asarray(call.indexes.forward_indexes)
    sums = sums_of_ranges(call.matrices, call.region, ranges)
    columns = call.region.columns
    n = call.matrices.tensor(sums.between(0, 1))

    def mean(begin: int, end: int) -> Tensor:
        return call.matrices.tensor(sums.between(begin, end)) / n

    counts = [n.apply("Log")] * c.num_log_count_features
    if not c.output_stddevs:
        return call.side_by_side(*counts, mean(1, columns))
    middle = (columns + 1) // 2
    m, q = mean(1, middle), mean(middle, columns)
    variance = (q - m * m).maximum(float(c.variance_floor))
    return call.side_by_side(*counts, m, variance.apply("Sqrt"))


@translates(components.LstmNonlinearityComponent)
def lstm_nonlinearity(call: Call) -> Region:
    """c = s_f f c' + s_i i g, m = s_o o tanh(c): the cell c and the output m of an LSTM.

    i = sigmoid(a_i + w_ic c'), f = sigmoid(a_f + w_fc c'), g = tanh(a_g),
    o = sigmoid(a_o + w_oc c). The columns of x are a_i, a_f, a_g, a_o, c' and, with dropout, the
    masks s_i, s_f, s_o, one column each; without dropout the masks are 1.
    """
    dim = call.component.cell_dim
    a_i, a_f, a_g, a_o, c_prev = (call.columns(dim * k, dim * (k + 1)) for k in range(5))
    w_ic, w_fc, w_oc = (_peephole(call, row, name) for row, name in enumerate(("ic", "fc", "oc")))
    i = (a_i + c_prev * w_ic).apply("Sigmoid")
    f = (a_f + c_prev * w_fc).apply("Sigmoid")
    if call.component.use_dropout:
        i, f = i * _mask(call, 0), f * _mask(call, 1)
    c = f * c_prev + i * a_g.apply("Tanh")
    o = (a_o + c * w_oc).apply("Sigmoid")
    if call.component.use_dropout:
        o = o * _mask(call, 2)
    return call.side_by_side(c, o * c.apply("Tanh"))


def _peephole(call: Call, row: int, name: str) -> Tensor:
    """Returns a row of the parameters, (cell_dim,)."""
    return call.derived(f"params.{name}", lambda: call.component.params[row])


def _mask(call: Call, number: int) -> Tensor:
    """Returns the mask of a gate, (rows, 1)."""
    first = 5 * call.component.cell_dim + number
    return call.columns(first, first + 1)


def _gru_cell(call: Call, z: Tensor, a: Tensor, c_prev: Tensor) -> Region:
    """h = tanh(a), c = (1 - z) h + z c'; h and c side by side."""
    h = a.apply("Tanh")
    return call.side_by_side(h, (1.0 - z) * h + z * c_prev)


@translates(components.GruNonlinearityComponent)
def gru_nonlinearity(call: Call) -> Region:
    """h = tanh(p + W (r s)), c = (1 - z) h + z c'.

    The columns of x are z, r, p, c' and s. If s has as many columns as c', it is c', and x has it
    only once.
    """
    cell, recurrent = call.component.cell_dim, call.component.recurrent_dim
    ends = list(itertools.accumulate((cell, recurrent, cell, cell), initial=0))
    z, r, p, c_prev = (call.columns(*both) for both in itertools.pairwise(ends))
    s = call.columns(call.region.columns - recurrent, call.region.columns)
    return _gru_cell(call, z, p + (r * s) @ call.transposed("w_h"), c_prev)


@translates(components.OutputGruNonlinearityComponent)
def output_gru_nonlinearity(call: Call) -> Region:
    """h = tanh(p + w c'), c = (1 - z) h + z c'; all element by element, of columns z, p and c'."""
    z, p, c_prev = call.blocks(3)
    return _gru_cell(call, z, p + c_prev * call.parameter("w_h"), c_prev)


def _why_not(component: Any) -> str:
    for number, part in enumerate(component.components):
        reason = why_not(part)
        if reason:
            return f"has a part {number} of type {part.type} that {reason}"
    return ""


@translates(components.CompositeComponent, refuses=_why_not)
def composite(call: Call) -> Tensor | Region:
    """y = f_n(... f_2(f_1(x))), for max_rows_process rows at a time if parts use all rows."""
    rows, step = call.region.rows, call.component.max_rows_process
    if step <= 0 or not joins_rows(call.component):
        step = rows
    if step >= rows:
        return _of_rows(call, call.region)
    pieces = [np.arange(begin, min(begin + step, rows)) for begin in range(0, rows, step)]
    outputs = [_of_rows(call, call.region.take(piece)) for piece in pieces]
    return concat([call.matrices.tensor(each) for each in outputs], axis=-2)


def joins_rows(component: Any) -> bool:
    """Whether rows of the output depend on the mean of all rows."""
    if isinstance(component, components.CompositeComponent):
        return any(map(joins_rows, component.components))
    return isinstance(component, components.BatchNormComponent) and not component.test_mode


def _of_rows(call: Call, region: Region) -> Region:
    """Returns the output of all parts, one after the other, for some rows.

    The name of a part is none that another component can have.
    """
    for number, part in enumerate(call.component.components):
        this = attrs.evolve(
            call, component=part, name=f"{call.name}#{number}", region=region, rows_out=region.rows
        )
        region = translate(this)
    return region
