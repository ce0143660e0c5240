"""What several kernels record: products with parameters, gradients, rows at offsets, totals.

For y = x A^T + b the plain gradient is dy^T x for A, and the sum of the rows of dy for b.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from nnet3_descriptors.components import TimeOffsetPrecomputedIndexes

from nnet3_runtime_cuda.kernels.base import ComponentStore
from nnet3_runtime_cuda.operations import Array, Tape
from nnet3_runtime_cuda.operations.gradients import AffineGradient, FisherEstimate, Sides
from nnet3_runtime_cuda.operations.natural_gradient import record_natural_gradient
from nnet3_runtime_cuda.operations.panels import ROWS, Panels


def record_product(
    store: ComponentStore,
    tape: Tape,
    x: Array,
    parameters: Array,
    out: Array,
    *,
    add: bool = False,
    plus: Array | None = None,
    panels: Panels | None = None,
) -> None:
    """Records out = x A^T, or out += x A^T, or out = plus + x A^T, with parameters A of the store.

    Fixed parameters get one layout for all numbers of rows.

    Args:
        store: Keeps the copies.
        tape: Records the arithmetic.
        x: (rows, input_dim).
        parameters: (output_dim, input_dim), A.
        out: (rows, output_dim).
        add: Add to what `out` holds.
        plus: (rows, output_dim), added.
        panels: A^T in panels, if the caller has it.
    """
    rows = len(out)
    factor: Array | Panels
    if panels is not None:
        factor = panels
    elif store.is_fixed and tape.gains_by_panels(ROWS[-1]):
        # One row, or more of them, take no longer, and parameters stand in memory in one layout.
        factor = store.panels(parameters)
    else:
        factor = store.transposed(parameters, pays=tape.gains_by_transposing(rows, parameters))
    record_factor_product(tape, x, factor, out, add=add, plus=plus)


def record_factor_product(
    tape: Tape,
    x: Array,
    factor: Array | Panels,
    out: Array,
    *,
    add: bool = False,
    plus: Array | None = None,
) -> None:
    """Records out = x M, or out += x M, or out = plus + x M, where M may be in panels.

    Args:
        tape: Records the arithmetic.
        x: (rows, inner).
        factor: (inner, columns), M.
        out: (rows, columns).
        add: Add to what `out` holds.
        plus: (rows, columns), or broadcast to that, added.
    """
    if isinstance(factor, Panels):
        factor.record(tape, x, out, add=add, plus=plus)
    else:
        tape.matmul(x, factor, out, add=add, plus=plus)


def add_column_sum(tape: Tape, a: Array, out: Array) -> None:
    """Records out[c] += sum over r of a[r, c]."""
    total = tape.scratch(1, a.shape[1])
    tape.column_sum(a, total)
    tape.add(out, total[0], out)


def record_affine_gradient(tape: Tape, gradient: AffineGradient, sides: Sides | None) -> None:
    """Records the gradient: added to linear and bias, or in place of their contents.

    It is the natural gradient of these estimates; the plain one if `sides` is None.
    """
    if sides is not None:
        record_natural_gradient(tape, sides, gradient)
        return
    dy, linear, bias = gradient.dy, gradient.linear, gradient.bias
    add = not gradient.first
    if gradient.product is not None:
        gradient.product(dy, linear, None, add)
    else:
        start = 0
        for x in gradient.xs:
            columns = linear[:, start : start + x.shape[1]]
            tape.matmul(dy.T, x, columns, add=add)
            start += x.shape[1]
    if bias is None:
        return
    if gradient.first:
        tape.column_sum(dy, bias[None])
    else:
        add_column_sum(tape, dy, bias)


def record_vector_update(
    tape: Tape,
    derivative: Array,
    direction: Array,
    estimate: FisherEstimate | None,
    *,
    is_scratch: bool = False,
) -> None:
    """Records the addition of the sum of the rows of `derivative`, which can be preconditioned.

    Args:
        tape: Records the arithmetic.
        derivative: (rows, dim), or (rows, k, dim): the derivative at each row.
        direction: The gradient that the sum is added to, (dim,).
        estimate: The estimate that preconditions the rows; None for the plain gradient.
        is_scratch: Whether derivative may be overwritten.
    """
    if derivative.ndim == 3 or (estimate is not None and not is_scratch):
        copy = tape.scratch(*derivative.shape)
        tape.copy(derivative, copy)
        derivative = copy.reshape(-1, direction.size)
    if estimate is None:
        add_column_sum(tape, derivative, direction)
        return
    scale = tape.precondition(estimate, derivative)
    total = tape.scratch(1, len(direction))
    tape.column_sum(derivative, total)
    tape.multiply(total, scale, total)
    tape.add(direction, total[0], direction)


# ---- rows: at offsets in time, in ranges, and totals of them ----


def rows_at_offsets(x: Array, indexes: TimeOffsetPrecomputedIndexes, num_rows: int) -> list[Array]:
    """For each time offset the rows of x that the rows of the output need: views of x.

    Args:
        x: (rows in, columns), so ordered that such rows have a constant distance.
        indexes: The precomputed indexes of the component.
        num_rows: Number of rows of the output.
    """
    stride = indexes.row_stride
    return [
        x[start : start + stride * (num_rows - 1) + 1 : stride] for start in indexes.row_offsets
    ]


def record_row_range_sums(
    tape: Tape, source: Array, ranges: npt.NDArray[np.int32], out: Array, *, add: bool
) -> None:
    """Records out[i] (+)= sum over begin <= r < end of source[r], with (begin, end) = ranges[i].

    Args:
        tape: Records the arithmetic.
        source: (rows in, cols).
        ranges: (rows out, 2); an empty range, or (-1, -1), gives zero.
        out: (rows out, cols).
        add: whether the sums are added to out; otherwise they replace it.
    """
    begin, end = ranges[:, 0].astype(np.int64), ranges[:, 1].astype(np.int64)
    lengths = np.maximum(end - begin, 0)
    target = tape.scratch(*out.shape) if add else out
    is_regular = bool(len(out)) and lengths.min() == lengths.max() > 0 and _is_progression(begin)
    if is_regular and lengths[0] <= 2:
        _record_regular(tape, source, begin, int(lengths[0]), target)
    elif tape.range_sum(source, np.ascontiguousarray(ranges), target):
        pass
    elif is_regular:
        _record_regular(tape, source, begin, int(lengths[0]), target)
    else:
        for row, (first, length) in enumerate(zip(begin.tolist(), lengths.tolist(), strict=True)):
            if length == 0:
                tape.fill(0.0, target[row])
            else:
                tape.column_sum(source[first : first + length], target[row : row + 1])
    if add:
        tape.add(out, target, out)


def record_moments(
    tape: Tape, x: Array, ranges: npt.NDArray[np.int32], sums: Array, squares: Array
) -> None:
    """Records the sums of the rows of ranges, and of their squares, in one pass over x.

    Args:
        tape: Records the arithmetic.
        x: (rows in, cols).
        ranges: (rows out, 2), as in `record_row_range_sums`.
        sums: (rows out, cols).
        squares: (rows out, cols), the sums of squares.
    """
    if tape.range_sum(x, np.ascontiguousarray(ranges), sums, squares):
        return
    longest = max(int((ranges[:, 1] - ranges[:, 0]).max(initial=0)), 1)
    count = max(tape.rows_per_sum(x) // longest, 1)
    for start in tape.independent(range(0, len(ranges), count)):
        part = slice(start, start + count)
        own = ranges[part]
        filled = own[own[:, 0] < own[:, 1]]
        first, end = int(filled[:, 0].min(initial=len(x))), int(filled[:, 1].max(initial=0))
        rows = x[first:end]
        squared = tape.scratch(*rows.shape)
        tape.square(rows, squared)
        record_row_range_sums(tape, rows, own - first, sums[part], add=False)
        record_row_range_sums(tape, squared, own - first, squares[part], add=False)


def _is_progression(values: npt.NDArray[np.int64]) -> bool:
    steps = np.diff(values)
    return len(steps) == 0 or bool((steps == steps[0]).all())


def _record_regular(
    tape: Tape, source: Array, begin: npt.NDArray[np.int64], length: int, out: Array
) -> None:
    """Ranges of equal length whose starts are in progression: one sum over a strided view."""
    step = int(begin[1] - begin[0]) if len(begin) > 1 else 0
    rows, columns = source.strides
    windows = np.lib.stride_tricks.as_strided(
        source[int(begin[0]) :],
        shape=(len(begin), length, source.shape[1]),
        strides=(step * rows, rows, columns),
        writeable=False,
    )
    if length == 1:
        tape.copy(windows[:, 0], out)
    elif length == 2:
        tape.add(windows[:, 0], windows[:, 1], out)
    else:
        tape.sum(windows, 1, out)


def add_total(tape: Tape, values: Array, total: Array) -> None:
    """Records total += sum of the values; values: (rows,), total: (1, 1) float64."""
    part = tape.scratch(1, 1, dtype=np.float64)
    tape.row_sum(values.reshape(1, -1), part)
    tape.add(total, part, total)


def add_count_above(tape: Tape, values: Array, limit: float, total: Array) -> None:
    """Records total += number of values above a limit; values: (rows,), total: (1, 1) float64."""
    above = tape.scratch(len(values), dtype=np.bool_)
    tape.greater(values, limit, above)
    add_total(tape, above, total)
