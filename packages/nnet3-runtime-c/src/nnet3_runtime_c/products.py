"""Affine maps and convolutions as products of matrices."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from nnet3_descriptors import components as types
from numpy.typing import ArrayLike, NDArray

from nnet3_runtime_c.calls import PANEL, Array, Call, Statements, converts

_IN_INTEGERS = (
    types.AffineComponent,
    types.NaturalGradientAffineComponent,
    types.FixedAffineComponent,
    types.LinearComponent,
    types.TdnnComponent,
)
"""Types whose weights may be integers of 8 bits."""

PRODUCTS = (
    *_IN_INTEGERS,
    types.BlockAffineComponent,
    types.RepeatedAffineComponent,
    types.NaturalGradientRepeatedAffineComponent,
    types.TimeHeightConvolutionComponent,
    types.ConvolutionComponent,
)
"""Types whose products can be added where they are stored, and go on with an `End`."""


def panels(matrix: ArrayLike) -> NDArray[np.float32]:
    """Weights in the order of products.

    Args:
        matrix: W of y = x W^T, (columns of y, columns of x).

    Returns:
        (panels, columns of x, PANEL): W^T in panels of columns, the last one filled up with zeros.
    """
    values = np.asarray(matrix, np.float32)
    out, columns = values.shape
    filled = np.zeros((-(-out // PANEL) * PANEL, columns), np.float32)
    filled[:out] = values
    return np.ascontiguousarray(
        filled.reshape(len(filled) // PANEL, PANEL, columns).transpose(0, 2, 1)
    )


def integer_panels(matrix: ArrayLike) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights in 8 bits, in the order of products of integers.

    Args:
        matrix: W of y = x W^T, (columns of y, columns of x).

    Returns:
        For each panel, -128 times the sum of the integers of each column in 32 bits, then (groups,
        PANEL, 4) integers: four columns of x together, filled up with zeros. All are shown as
        elements of 32 bits. And the scales, (columns of y,), by which integers are weights.
    """
    values = np.asarray(matrix, np.float32)
    largest = np.abs(values).max(axis=1, initial=0.0)
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    count, groups = -(-values.shape[0] // PANEL), -(-values.shape[1] // 4)
    integers = np.zeros((count * PANEL, groups * 4), np.int8)
    integers[: values.shape[0], : values.shape[1]] = np.rint(values / scales[:, None])
    sums = (-128 * integers.sum(axis=1, dtype=np.int32)).astype("<i4").view(np.int8)
    grouped = integers.reshape(count, PANEL, groups, 4).transpose(0, 2, 1, 3)
    whole = np.concatenate([sums.reshape(count, 1, PANEL, 4), grouped], axis=1)
    return np.ascontiguousarray(whole).reshape(-1).view(np.float32), scales


class _Step(NamedTuple):
    """A product, for some columns of the output.

    Attributes:
        terms: First element and columns of each part of a row of x.
        matrix: W, (columns of y, columns of all parts).
        begin, columns: First column of y, and their number.
        number: Equal numbers have equal W.
    """

    terms: Sequence[tuple[int, int]]
    matrix: Array
    begin: int
    columns: int
    number: int = 0


def products(call: Call, steps: Sequence[_Step], bias: Array | None, stride: int = 1) -> Statements:
    """The statements of products for parts of the columns.

    Args:
        call: The component.
        steps: The products.
        bias: What is added to the columns of y; None for nothing. Where it has fewer elements than
            there are columns, it is repeated.
        stride: The distance of the rows of the input that belong to rows of the output.
    """
    if call.resources.int8 and type(call.component) in _IN_INTEGERS:
        [step] = steps
        yield _product_of_integers(call, step, bias, stride)
        return
    x, y = call.x, call.y
    table: list[tuple[int, ...]] = []
    terms: list[tuple[int, int]] = []
    for step in steps:
        begin, count = step.begin, step.columns
        place = call.weights(f"weights {step.number}", functools.partial(panels, step.matrix))
        offset = -1
        if bias is not None:
            part = bias if len(bias) == count else bias[begin : begin + count]
            key = "bias" if len(bias) == count else f"bias {begin}"
            offset = call.weights(key, functools.partial(np.asarray, part))
        table.append((len(terms), len(step.terms), place, offset, begin, count))
        terms += step.terms
    source = x._replace(stride=x.stride * stride)
    parts = call.table(np.reshape(terms, (-1, 2)))
    if len(table) == 1:
        [(_, _, place, offset, begin, count)] = table
        end = _end(call, "0" if offset < 0 else f"w + {offset}")
        target = y._replace(first=y.first + begin, columns=count)
        yield call.statement(
            "product", count, parts, len(terms), source, f"w + {place}", end, target
        )
        return
    name, end = call.table(table), _end(call, "0")
    yield call.resources.call("products", name, len(table), y.rows, parts, source, "w", end, y)


def _product_of_integers(call: Call, step: _Step, bias: Array | None, stride: int) -> str:
    """The statement of a product with weights in 8 bits."""
    x, y = call.x, call.y
    place = call.weights("integers", lambda: integer_panels(step.matrix)[0], are_bits=True)
    offset = -1 if bias is None else call.weights("bias", lambda: bias)
    groups = -(-step.matrix.shape[1] // 4)
    kept = call.resources.new(y.rows, 1 + groups)
    return call.statement(
        "product8", y.columns, call.table(step.terms), len(step.terms),
        x._replace(stride=x.stride * stride), f"(const int8_t *)(w + {place})",
        call.pointer("scales of integers", lambda: integer_panels(step.matrix)[1]),
        _end(call, "0" if offset < 0 else f"w + {offset}"), f"m + {kept.first}", y,
    )  # fmt: skip


def _end(call: Call, bias: str) -> str:
    """The end of a product in C."""
    end, width = call.end, call.y.columns

    def filled(values: Array) -> Array:
        """Each column's number, and as many as a panel reads behind the last column."""
        return np.concatenate([np.resize(values, width), np.zeros(PANEL, np.float32)])

    pointers = [
        "0"
        if values is None
        else f"w + {call.resources.weights(key, functools.partial(filled, values))}"
        for values, key in (
            (end.scales, f"{end.name}.scales of a product"),
            (end.offsets, f"{end.name}.offsets of a product"),
        )
    ]
    return f"(struct nnet3_end){{{bias}, {', '.join(pointers)}, {int(call.adds)}, {int(end.relu)}}}"


def product(call: Call, matrix: Array, bias: Array | None) -> Statements:
    """The statements of y = x W^T + b."""
    width = call.y.columns
    yield from products(call, [_Step([(0, call.x.columns)], matrix, 0, width)], bias)


@converts(types.AffineComponent, types.NaturalGradientAffineComponent, types.FixedAffineComponent)
def _affine(call: Call) -> Statements:
    yield from product(call, call.component.linear_params, call.component.bias_params)


@converts(types.LinearComponent)
def _linear(call: Call) -> Statements:
    yield from product(call, call.component.params, None)


@converts(types.BlockAffineComponent)
def _block_affine(call: Call) -> Statements:
    c = call.component
    wide, high = call.x.columns // c.num_blocks, call.y.columns // c.num_blocks
    matrices = c.linear_params.reshape(c.num_blocks, high, wide)
    steps = [
        _Step([(k * wide, wide)], matrix, k * high, high, k) for k, matrix in enumerate(matrices)
    ]
    yield from products(call, steps, c.bias_params)


@converts(types.RepeatedAffineComponent, types.NaturalGradientRepeatedAffineComponent)
def _repeated_affine(call: Call) -> Statements:
    c = call.component
    high, wide = c.linear_params.shape
    steps = [
        _Step([(k * wide, wide)], c.linear_params, k * high, high) for k in range(c.num_repeats)
    ]
    yield from products(call, steps, c.bias_params)


@converts(types.TdnnComponent)
def _tdnn(call: Call) -> Statements:
    c = call.component
    terms = [(start, call.x.columns) for start in call.row_starts()]
    bias = c.bias_params if c.bias_params.size else None
    step = _Step(_joined(terms), c.linear_params, 0, call.y.columns)
    yield from products(call, [step], bias, int(call.indexes.row_stride))


@converts(types.TimeHeightConvolutionComponent)
def _time_height_convolution(call: Call) -> Statements:
    """Each height of the output is a product; its columns are the neighbours that there are."""
    c = call.component
    wide, high = c.num_filters_in, c.num_filters_out
    parts = np.split(c.linear_params, len(c.offsets), axis=1)
    starts = dict(zip(c.time_offsets, call.row_starts(), strict=True))
    numbers: dict[tuple[int, ...], int] = {}
    steps = []
    for height in range(c.height_out):
        seen = [
            (number, starts[time] + (c.height_subsample_out * height + offset) * wide)
            for number, (time, offset) in enumerate(c.offsets)
            if 0 <= c.height_subsample_out * height + offset < c.height_in
        ]
        chosen = tuple(number for number, _ in seen)
        matrix = np.concatenate([parts[0][:, :0], *(parts[number] for number in chosen)], axis=1)
        terms = _joined([(first, wide) for _, first in seen])
        number = numbers.setdefault(chosen, len(numbers))
        steps.append(_Step(terms, matrix, height * high, high, number))
    yield from products(call, steps, c.bias_params, int(call.indexes.row_stride))


def _joined(terms: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins terms (first element, columns) that follow one another in memory."""
    found: list[tuple[int, int]] = []
    for first, columns in terms:
        if found and sum(found[-1]) == first:
            found[-1] = (found[-1][0], found[-1][1] + columns)
        else:
            found.append((first, columns))
    return found


@converts(types.ConvolutionComponent)
def _convolution(call: Call) -> Statements:
    """Each place of the filters is a product."""
    c = call.component
    z, high = c.input_z_dim, c.num_filters
    filters = c.filter_params.reshape(high, c.filt_x_dim, c.filt_y_dim, z)
    is_z_fastest = c.input_vectorization == "zyx"
    matrix = (filters if is_z_fastest else filters.transpose(0, 1, 3, 2)).reshape(high, -1)
    steps = []
    out_x = (c.input_x_dim - c.filt_x_dim) // c.filt_x_step + 1
    out_y = (c.input_y_dim - c.filt_y_dim) // c.filt_y_step + 1
    for i, j in itertools.product(range(out_x), range(out_y)):
        terms = []
        for column in range(i * c.filt_x_step, i * c.filt_x_step + c.filt_x_dim):
            row = j * c.filt_y_step
            if is_z_fastest:
                terms.append(((column * c.input_y_dim + row) * z, c.filt_y_dim * z))
                continue
            terms += [((column * z + k) * c.input_y_dim + row, c.filt_y_dim) for k in range(z)]
        steps.append(_Step(_joined(terms), matrix, (i * out_y + j) * high, high))
    yield from products(call, steps, c.bias_params)
