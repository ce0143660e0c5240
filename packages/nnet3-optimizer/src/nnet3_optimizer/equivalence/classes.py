"""Rows of a matrix by classes: those that have the same coefficients; see `labels`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nnet3_optimizer.equivalence.field import PRIME
from nnet3_optimizer.equivalence.keys import Column
from nnet3_optimizer.equivalence.labels import MARKER, Ints, time_shift
from nnet3_optimizer.equivalence.moves import Moves, Windows
from nnet3_optimizer.equivalence.pattern import IrregularError
from nnet3_optimizer.equivalence.stretches import Stretches

_FEW_PER_ROW, _FEW = 4, 1024
"""Codes up to so many per row, and up to so many, are counted, not sorted."""


class ClassRows(Stretches):
    """Rows and columns of a matrix, by classes.

    Attributes:
        starts, columns, constants: Those of the rows that stand for each class.
        classes: (rows,) the class of each row; None if there is but one.
        absolute: For each stretch, whether it holds absolute coefficients.
    """

    __slots__ = ("absolute", "classes")

    def __init__(
        self,
        starts: list[int],
        columns: list[Column],
        constants: list[Column] | None = None,
        *,
        classes: Ints | None = None,
        absolute: list[bool] | None = None,
    ) -> None:
        super().__init__(starts, columns, constants)
        self.classes = classes
        self.absolute = absolute or [False] * len(starts)

    def of_classes(self, some: list[int], classes: Ints | None) -> ClassRows:
        """Returns other rows: of some of the classes, -1 for zeros, and the place of each there."""
        some_rows = super().taken(some)
        return ClassRows(
            some_rows.starts,
            some_rows.columns,
            some_rows.constants,
            classes=classes,
            absolute=self.absolute,
        )

    def taken(self, rows: Moves) -> ClassRows:
        """Returns rows that come from elsewhere, zeros where they come from nowhere."""
        moves = rows
        is_row, number = moves.rows >= 0, len(moves.steps)
        codes = moves.step_of
        if self.classes is not None:
            codes = self.classes[moves.rows] * number + (0 if codes is None else codes)
        if not is_row.all():
            codes = np.where(is_row, (0 if codes is None else codes) + number, 0)
            used, classes = compact(codes, (len(self.columns[0]) + 1) * number)
            some = [code // number - 1 for code in used]
        elif codes is None:
            used, some, classes = [0], [0], None
        else:
            used, classes = compact(codes, len(self.columns[0]) * number)
            some = [code // number for code in used]
        taken = self.of_classes(some, classes)
        if moves.time is not None:
            factor = MARKER * time_shift(moves.time) % PRIME
            taken.columns = [
                column if is_absolute else [value * factor % PRIME for value in column]
                for column, is_absolute in zip(taken.columns, self.absolute, strict=True)
            ]
            taken.absolute = [True] * len(taken.starts)
        elif moves.steps != [0]:
            factors = [time_shift(moves.steps[code % number]) for code in used]
            taken.columns = [
                column
                if is_absolute
                else [value * factor % PRIME for value, factor in zip(column, factors, strict=True)]
                for column, is_absolute in zip(taken.columns, self.absolute, strict=True)
            ]
        return taken

    def shifted(self, steps: int) -> ClassRows:
        """Returns rows that come from so many steps later each."""
        factor = time_shift(steps)
        found = self.scaled(1)
        found.columns = [
            column if is_absolute else [value * factor % PRIME for value in column]
            for column, is_absolute in zip(self.columns, self.absolute, strict=True)
        ]
        return found

    def scaled(self, factor: int) -> ClassRows:
        """Returns all elements times a factor."""
        found = super().scaled(factor)
        return ClassRows(
            found.starts,
            found.columns,
            found.constants,
            classes=self.classes,
            absolute=self.absolute,
        )

    def range_sums(self, ranges: Windows) -> ClassRows:
        """Returns the sum of the rows in each window."""
        if any(self.absolute) or self.constants is not None:
            raise IrregularError
        numbers = self.classes
        if numbers is None:
            numbers = np.zeros(len(ranges.source.table), dtype=np.int64)
        held, is_absolute, classes = ranges.held(numbers)
        marker = MARKER if is_absolute else 1
        terms = [[(number, time_shift(time)) for number, time in window] for window in held]
        return ClassRows(
            self.starts,
            [
                [sum([column[n] * factor for n, factor in each]) * marker % PRIME for each in terms]
                for column in self.columns
            ],
            classes=classes,
            absolute=[is_absolute] * len(self.starts),
        )

    def expanded(self, labels: list[int]) -> Stretches:
        """Returns all rows as they are: coefficients times labels."""
        if any(self.absolute):
            raise IrregularError
        classes = [0] * len(labels) if self.classes is None else self.classes.tolist()
        columns = [
            [column[each] * label % PRIME for each, label in zip(classes, labels, strict=True)]
            for column in self.columns
        ]
        if self.constants is None:
            return Stretches(self.starts, columns)
        constants = [[column[each] for each in classes] for column in self.constants]
        return Stretches(self.starts, columns, constants)


def compact(codes: Ints, bound: int) -> tuple[list[int], Ints | None]:
    """Numbers the codes that there are.

    Args:
        codes: (rows,) numbers from 0 up to the bound.
        bound: The bound.

    Returns:
        The different codes, and the place of each row's there; None if there is but one.
    """
    if bound > _FEW_PER_ROW * len(codes) + _FEW:
        used, places = np.unique(codes, return_inverse=True)
        return used.tolist(), places.ravel() if len(used) > 1 else None
    used = np.flatnonzero(np.bincount(codes, minlength=bound))
    if len(used) < 2:
        return used.tolist(), None
    place = np.empty(bound, dtype=np.int64)
    place[used] = np.arange(len(used))
    return used.tolist(), place[codes]


def joint(parts: Iterable[tuple[Ints | None, int]]) -> tuple[list[list[int]], Ints | None]:
    """Returns classes of rows that are of the same classes in several respects.

    Args:
        parts: The class of each row in each respect, and the number of these.

    Returns:
        For each respect the class of each joint class, and the joint class of each row.
    """
    picks: list[list[int]] = []
    joined: Ints | None = None
    number = 1
    for classes, count in parts:
        if classes is None:
            picks.append([0] * number)
            continue
        if joined is None:
            used, joined = compact(classes, count)
            picks = [pick * len(used) for pick in picks]
            picks.append(used)
        else:
            used, joined = compact(joined * count + classes, number * count)
            picks = [[pick[code // count] for code in used] for pick in picks]
            picks.append([code % count for code in used])
        number = len(used)
    return picks, joined
