"""How the calls of a command are timed, and what it wrote is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from nnet3_runtime_cuda.arrays import FloatArray

Call = Callable[[], object]


class Written:
    """Rows that a command wrote.

    Attributes:
        matrix: Number of the matrix.
        row: The first row there.
        values: (rows, columns), where they lie in memory.
    """

    __slots__ = ("matrix", "row", "values")

    def __init__(self, matrix: int, row: int, values: FloatArray) -> None:
        self.matrix, self.row, self.values = matrix, row, values

    def largest(self) -> float:
        """The largest magnitude; nan if a value is no number."""
        if not self.values.size:
            return 0.0
        return float(np.maximum(self.values.max(), -self.values.min()))

    def largest_finite(self) -> float:
        """The largest magnitude of finite values; 0 if there are none."""
        finite = self.values[np.isfinite(self.values)]
        return float(np.abs(finite).max(initial=0.0))

    def first_fault(self) -> tuple[int, int, float]:
        """Row and column, within these, of the first value that is not finite, and the value."""
        row, column = np.argwhere(~np.isfinite(self.values))[0].tolist()
        return row, column, float(self.values[row, column])


class Hears(Protocol):
    """Hears of runs of commands."""

    def heard(
        self, position: int, start: float, end: float, written: Sequence[Written] | None
    ) -> None:
        """A command ran.

        Args:
            position: Of the command.
            start: When it began, by `time.perf_counter`.
            end: When it ended.
            written: What it wrote; None if that is not to be looked at.
        """
        ...


class TimedCalls:
    """The calls of one command, as one call that is timed."""

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
        """Runs the calls; what is done about them afterwards is not in the time."""
        start = time.perf_counter()
        for call in self.calls:
            call()
        self._hears.heard(self._position, start, time.perf_counter(), self._written)

    def __len__(self) -> int:
        return len(self.calls)


class Watch:
    """Told by the binding of a computation what each command writes; makes its calls timed ones."""

    def __init__(self, hears: Hears) -> None:
        """Begins with the first command.

        Args:
            hears: Of the runs.
        """
        self._hears = hears
        self._written: list[Written] = []

    def writes(self, matrix: int, row: int, values: FloatArray) -> None:
        """The current command sets or changes these rows of a matrix, which lie there."""
        self._written.append(Written(matrix, row, values))

    def command(
        self, position: int, calls: tuple[Call, ...], *, is_complete: bool
    ) -> tuple[Call, ...]:
        """What runs instead of the calls of the current command; the next one follows.

        Args:
            position: Of the command.
            calls: Its calls; may be none.
            is_complete: Whether it has written all that it was to write, when it has run.
        """
        written, self._written = self._written, []
        if not calls:
            return ()
        return (TimedCalls(calls, position, written if is_complete else None, self._hears),)
