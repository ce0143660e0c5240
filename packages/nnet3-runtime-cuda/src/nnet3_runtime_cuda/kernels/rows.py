"""Rows of matrices that kernels read: at offsets in time, in ranges, and totals of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from nnet3_descriptors.components import PrecomputedIndexes, TimeOffsetPrecomputedIndexes

from nnet3_runtime_cuda.operations import Array, Operations


def rows_at_offsets(x: Array, indexes: PrecomputedIndexes | None, num_rows: int) -> list[Array]:
    """For each time offset the rows of x that the rows of the output need: views of x.

    Args:
        x: (rows in, columns), so ordered that such rows have a constant distance.
        indexes: The precomputed indexes of the component.
        num_rows: Number of rows of the output.
    """
    assert isinstance(indexes, TimeOffsetPrecomputedIndexes)
    stride = indexes.row_stride
    return [
        x[start : start + stride * (num_rows - 1) + 1 : stride] for start in indexes.row_offsets
    ]


def record_row_range_sums(
    tape: Operations, source: Array, ranges: npt.NDArray[np.int32], out: Array, *, add: bool
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


def _is_progression(values: npt.NDArray[np.int64]) -> bool:
    steps = np.diff(values)
    return len(steps) == 0 or bool((steps == steps[0]).all())


def _record_regular(
    tape: Operations, source: Array, begin: npt.NDArray[np.int64], length: int, out: Array
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


def add_total(tape: Operations, values: Array, total: Array) -> None:
    """Records total += sum of the values; values: (rows,), total: (1, 1) float64."""
    part = tape.scratch(1, 1, dtype=np.float64)
    tape.row_sum(values.reshape(1, -1), part)
    tape.add(total, part, total)


def add_count_above(tape: Operations, values: Array, limit: float, total: Array) -> None:
    """Records total += number of values above a limit; values: (rows,), total: (1, 1) float64."""
    above = tape.scratch(len(values), dtype=np.bool_)
    tape.greater(values, limit, above)
    add_total(tape, above, total)
