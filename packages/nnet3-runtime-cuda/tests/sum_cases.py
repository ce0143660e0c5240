"""Products and sums as plain loops, and the operations that record them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from elementwise_cases import largest_of
from nnet3_runtime_cuda.cpu.tape import FEW_ROWS, NumpyTape
from nnet3_runtime_cuda.kernels.parameters import record_moments, record_row_range_sums
from operation_cases import (
    BOOL,
    DOUBLE,
    Result,
    Trial,
    broadcast,
    case,
    rows_of,
    trial,
)
from operation_places import Draw, Place


def _terms_of(
    a: Sequence[float], b: Sequence[float], sizes: tuple[int, int, int], count: int = 1
) -> list[list[float]]:
    """The terms of each element of a stack of products; sizes: rows, terms, columns."""
    rows, inner, columns = sizes
    return [
        [
            a[(k * rows + row) * inner + i] * b[(k * inner + i) * columns + column]
            for i in range(inner)
        ]
        for k, row, column in itertools.product(range(count), range(rows), range(columns))
    ]


def _add(terms: list[list[float]], added: Place | None, shape: Sequence[int]) -> None:
    """Gives each sum one more term, an element of an array that is broadcast."""
    if added is not None:
        for each, term in zip(terms, broadcast(added, shape), strict=True):
            each.append(term)


def _sizes(draw: Draw) -> tuple[int, int, int]:
    """Rows, terms of each sum, columns."""
    sizes = [draw.few(), draw.few(), draw.few()]
    sizes[draw.random.randrange(3)] = draw.length
    return sizes[0], sizes[1], sizes[2]


@case("matmul")
def _matmul(draw: Draw) -> Trial:
    rows, inner, columns = _sizes(draw)
    # With more rows, and most matrices contiguous, the BLAS library computes products with a sum.
    rows += FEW_ROWS if draw.chance(0.3) else 0
    layout = draw.random.choice(("read", "contiguous"))
    stack = tuple(draw.few() for _ in range(draw.random.choice((0, 0, 0, 1))))
    a = draw.place((*stack, rows, inner), kind="finite", layout="read")
    b = draw.place(
        (*(stack if draw.chance(0.5) else ()), inner, columns), kind="finite", layout=layout
    )
    way = "replace" if stack else draw.random.choice(("replace", "add", "plus"))
    out = draw.place(
        (*stack, rows, columns),
        kind="finite" if way == "add" else "none",
        layout="any" if layout == "read" else layout,
    )
    shape = draw.random.choice(((rows, columns), (1, columns), (columns,)))
    plus = draw.place(shape, kind="finite") if way == "plus" else None
    extra = None if plus is None else plus.array
    right = broadcast(b, (*stack, inner, columns))
    terms = _terms_of(a.values, right, (rows, inner, columns), math.prod(stack))
    _add(terms, out if way == "add" else plus, out.shape)
    return Trial(
        lambda tape: tape.matmul(a.array, b.array, out.array, add=way == "add", plus=extra),
        (Result.summed(out, terms),),
    )


@case("small_products")
def _small_products(draw: Draw) -> Trial:
    """Stacks with two axes, one of which either factor can lack, as for panels."""
    rows, inner, columns = _sizes(draw)
    stack = tuple(draw.few() if draw.chance(0.5) else 1 for _ in range(draw.random.randint(0, 2)))
    stacks = [tuple(1 if draw.chance(0.3) else n for n in stack) for _ in range(2)]
    a = draw.place((*stacks[0], rows, inner), kind="finite", layout="read")
    b = draw.place((*stacks[1], inner, columns), kind="finite", layout="read")
    out = draw.place((*stack, rows, columns), kind="none")
    left, right = broadcast(a, (*stack, rows, inner)), broadcast(b, (*stack, inner, columns))
    terms = _terms_of(left, right, (rows, inner, columns), math.prod(stack))
    return trial("small_products", a, b, result=Result.summed(out, terms))


def _pair(draw: Draw) -> tuple[Place, Place, list[list[float]]]:
    """Two matrices of the same shape, and the products of their elements by row."""
    rows, columns = draw.shape(2)
    a = draw.place((rows, columns), kind="finite", layout="read")
    b = a if draw.chance(0.3) else draw.place((rows, columns), kind="finite", layout="read")
    products = [x * y for x, y in zip(a.values, b.values, strict=True)]
    return a, b, [products[row * columns : (row + 1) * columns] for row in range(rows)]


def _turned(rows: list[list[float]], columns: int) -> list[list[float]]:
    """The columns of a list of rows."""
    return [[row[column] for row in rows] for column in range(columns)]


def _type_of_sums(draw: Draw) -> np.dtype:
    """The type of the terms, or double precision."""
    return DOUBLE if draw.chance(0.3) else draw.dtype


@case("row_dot")
def _row_dot(draw: Draw) -> Trial:
    a, b, terms = _pair(draw)
    out = draw.place(a.shape[:1], _type_of_sums(draw), kind="none")
    return trial("row_dot", a, b, result=Result.summed(out, terms))


@case("column_sum_of_products")
def _column_sum_of_products(draw: Draw) -> Trial:
    a, b, terms = _pair(draw)
    out = draw.place((1, a.shape[1]), _type_of_sums(draw), kind="none")
    result = Result.summed(out, _turned(terms, a.shape[1]))
    return trial("column_sum_of_products", a, b, result=result)


@case("column_sum")
def _column_sum(draw: Draw) -> Trial:
    a = draw.place(draw.shape(2), draw.tape_dtype, kind="finite", layout="read")
    out = draw.place((1, a.shape[1]), DOUBLE if draw.chance(0.3) else a.dtype, kind="none")
    result = Result.summed(out, _turned(rows_of(a), a.shape[1]))
    return trial("column_sum", a, result=result)


@case("within_range")
def _within_range(draw: Draw) -> Trial:
    """Norms of rows, of which some have squares that overflow."""
    shape = draw.shape(2)
    large = draw.random.choice((1.0, 1e30))
    values = [draw.random.gauss(0.0, 1.0) * large for _ in range(shape[0] * shape[1])]
    a = draw.place(shape, draw.tape_dtype, values=values, layout="read")
    out = draw.place(shape[:1], draw.tape_dtype, kind="none")
    norms = [math.hypot(*row) for row in rows_of(a)]
    error = float(np.finfo(out.dtype).eps) * (shape[1] + 3)

    def record(tape: NumpyTape) -> None:
        def norms_of(dtype: np.dtype) -> None:
            squares = out.array if out.dtype == dtype else tape.scratch(shape[0], dtype=dtype)
            tape.row_dot(a.array, a.array, squares)
            tape.sqrt(squares, out.array)

        tape.within_range(norms_of, out.array)

    return Trial(record, (Result(out, norms, [error * norm for norm in norms]),))


@case("count_positive")
def _count_positive(draw: Draw) -> Trial:
    a = draw.place(draw.shape(2), layout="read")
    if draw.chance(0.3):
        draw.replace(a, [1.0] * len(a.positions))
    out = draw.place((1, a.shape[1]), kind="none")
    counts = [sum(value > 0.0 for value in column) for column in _turned(rows_of(a), a.shape[1])]
    return trial("count_positive", a, result=Result.exact(out, counts))


@case("row_sum")
def _row_sum(draw: Draw) -> Trial:
    """Row sums of numbers, or of flags as numbers of double precision."""
    is_flags = draw.chance(0.2)
    a = draw.place(draw.shape(2), BOOL if is_flags else None, kind="finite", layout="read")
    out = draw.place((a.shape[0], 1), DOUBLE if is_flags else None, kind="none")
    return trial("row_sum", a, result=Result.summed(out, rows_of(a)))


@case("sum")
def _sum(draw: Draw) -> Trial:
    shape = draw.shape(draw.random.randint(2, 3))
    axis = draw.random.randrange(len(shape))
    a = draw.place(shape, kind="finite", layout="read")
    out = draw.place((*shape[:axis], *shape[axis + 1 :]), kind="none")
    terms: dict[tuple[int, ...], list[float]] = {
        index: [] for index in itertools.product(*map(range, out.shape))
    }
    for index, value in zip(itertools.product(*map(range, shape)), a.values, strict=True):
        terms[(*index[:axis], *index[axis + 1 :])].append(value)
    return trial("sum", a, axis, result=Result.summed(out, list(terms.values())))


@case("row_maximum")
def _row_maximum(draw: Draw) -> Trial:
    rows, columns = draw.shape(2)
    a = draw.place((rows, max(columns, 1)), layout="read")
    out = draw.place((rows, 1), kind="none")
    largest = [functools.reduce(largest_of, row) for row in rows_of(a)]
    return trial("row_maximum", a, result=Result.exact(out, largest))


def ranges_of(draw: Draw, rows: int, count: int) -> list[tuple[int, int]]:
    """Consecutive ranges of equal length, or any ranges, some of them empty."""
    if draw.chance(0.5):
        step = draw.random.randint(0, 1) if count <= 4 else 0
        length = draw.random.randint(1, rows - (step * (count - 1) if count else 0))
        return [(k * step, k * step + length) for k in range(count)]
    ends = [sorted((draw.random.randint(0, rows), draw.few())) for _ in range(count)]
    return [(-1, -1) if draw.chance(0.2) else (begin, end) for begin, end in ends]


def _ranges(draw: Draw) -> tuple[Place, np.ndarray, list[list[float]]]:
    """A matrix, ranges of its rows, and the terms of the sum of each range and column."""
    count, columns = draw.shape(2)
    a = draw.place((draw.few() + 4, columns), draw.tape_dtype, kind="finite")
    ranges, rows = ranges_of(draw, a.shape[0], count), rows_of(a)
    terms = [
        [rows[row][column] for row in range(begin, end)]
        for begin, end in ranges
        for column in range(columns)
    ]
    return a, np.array(ranges, np.int32).reshape(-1, 2), terms


@case("record_row_range_sums")
def _record_row_range_sums(draw: Draw) -> Trial:
    """Sums of ranges, which may be added."""
    a, ranges, terms = _ranges(draw)
    is_added = draw.chance(0.5)
    shape = len(ranges), a.shape[1]
    out = draw.place(shape, a.dtype, kind="finite" if is_added else "none")
    _add(terms, out if is_added else None, shape)
    return Trial(
        lambda tape: record_row_range_sums(tape, a.array, ranges, out.array, add=is_added),
        (Result.summed(out, terms),),
    )


@case("record_moments")
def _record_moments(draw: Draw) -> Trial:
    """Sums of ranges, and of squares."""
    a, ranges, terms = _ranges(draw)
    shape = len(ranges), a.shape[1]
    sums, squares = (draw.place(shape, a.dtype, kind="none") for _ in range(2))
    of_squares = [[value * value for value in each] for each in terms]
    return Trial(
        lambda tape: record_moments(tape, a.array, ranges, sums.array, squares.array),
        (Result.summed(sums, terms), Result.summed(squares, of_squares)),
    )
