"""Sums over ranges of rows, recorded in the way that needs the fewest passes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.operations import Array, Operations


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
