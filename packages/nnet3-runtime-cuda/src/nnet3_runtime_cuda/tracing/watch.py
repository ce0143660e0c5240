"""Times the calls of a command, and looks at the values that it wrote."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from nnet3_runtime_cuda.arrays.checks import FloatArray

Call = Callable[[], object]


class Written:
    """Rows that a command wrote.

    Attributes:
        matrix: Number of the matrix.
        row: The first row there.
        values: The rows in memory, (rows, columns): a view.
    """

    __slots__ = ("matrix", "row", "values")

    def __init__(self, matrix: int, row: int, values: FloatArray) -> None:
        self.matrix, self.row, self.values = matrix, row, values

    def largest(self) -> float:
        """The largest magnitude; NaN if any value is."""
        if not self.values.size:
            return 0.0
        return float(np.maximum(self.values.max(), -self.values.min()))

    def largest_finite(self) -> float:
        """The largest magnitude of finite values; 0 if there are none."""
        finite = self.values[np.isfinite(self.values)]
        return float(np.abs(finite).max(initial=0.0))

    def first_fault(self) -> tuple[int, int, float]:
        """Row and column within these rows of the first value that is not finite, and the value."""
        row, column = np.argwhere(~np.isfinite(self.values))[0].tolist()
        return row, column, float(self.values[row, column])


class Hears(Protocol):
    """Hears of each run of a command."""

    def heard(
        self, position: int, start: float, end: float, written: Sequence[Written] | None
    ) -> None:
        """Is called after a command ran.

        Args:
            position: Position of the command.
            start: The time at which it began, by `time.perf_counter`.
            end: The time at which it ended.
            written: The rows that it wrote; None if they are incomplete.
        """
        ...


class TimedCalls:
    """The calls of one command, as one timed call."""

    __slots__ = ("_hears", "_position", "_written", "calls")

    def __init__(
        self,
        calls: tuple[Call, ...],
        position: int,
        written: Sequence[Written] | None,
        hears: Hears,
    ) -> None:
        self.calls, self._position = calls, position
        self._written, self._hears = written, hears

    def __call__(self) -> None:
        """Runs the calls, and reports the run; the time does not include the report."""
        start = time.perf_counter()
        for call in self.calls:
            call()
        self._hears.heard(self._position, start, time.perf_counter(), self._written)

    def __len__(self) -> int:
        return len(self.calls)


class Watch:
    """Observes the binding of a computation: notes the rows written, and times the calls."""

    def __init__(self, hears: Hears) -> None:
        """Begins with the first command.

        Args:
            hears: Hears of the runs.
        """
        self._hears = hears
        self._written: list[Written] = []

    def writes(self, matrix: int, row: int, values: FloatArray) -> None:
        """Notes that the current command writes these rows of a matrix; values: a view of them."""
        self._written.append(Written(matrix, row, values))

    def command(
        self, position: int, calls: tuple[Call, ...], *, is_complete: bool
    ) -> tuple[Call, ...]:
        """Returns timed calls in place of the current command's, and begins the next command.

        Args:
            position: Position of the command.
            calls: Its calls; possibly none.
            is_complete: Whether the noted rows are complete once the calls have run.
        """
        written, self._written = self._written, []
        if not calls:
            return ()
        return (TimedCalls(calls, position, written if is_complete else None, self._hears),)
