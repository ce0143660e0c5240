"""The state of a symbolic execution that follows classes of rows; see `labels`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import cast

import numpy as np

from nnet3_optimizer.equivalence.classes import ClassRows, joint
from nnet3_optimizer.equivalence.field import PRIME
from nnet3_optimizer.equivalence.keys import ABSENT, Column, rows_of
from nnet3_optimizer.equivalence.labelled_pattern import LabelledPattern
from nnet3_optimizer.equivalence.labels import Ints
from nnet3_optimizer.equivalence.matrices import Content
from nnet3_optimizer.equivalence.moves import Windows, steps_between
from nnet3_optimizer.equivalence.pattern import IrregularError
from nnet3_optimizer.equivalence.state import State
from nnet3_optimizer.equivalence.stretches import Stretches
from nnet3_optimizer.equivalence.unknowns import Function


class LabelledState(State):
    """What commands read and write, by classes of rows.

    What a matrix holds is one row for each class, and the class of each row.
    """

    pattern: LabelledPattern

    def _prepare(self) -> None:
        self._classes: dict[int, Ints | None] = {}
        self._absolute: dict[int, list[tuple[int, int]]] = {}

    def rows_of(self, submatrix: int) -> int:
        """Returns 1: rows that nothing tells apart are one."""
        return 1

    height = rows_of

    def allocate(self, submatrix: int, column: Column) -> None:
        """Allocates a matrix, all rows of which have the same coefficient."""
        matrix = self._matrix_of[submatrix]
        self.contents[matrix] = Content(self.unknowns, column, 1, self._widths[matrix])
        self._classes[matrix] = None
        self._absolute[matrix] = []

    def allocate_zeroed(self, submatrix: int) -> None:
        """Allocates a matrix with zeros."""
        self.allocate(submatrix, [0])

    def hand_over(self, destination: int, source: int) -> None:
        """Moves the content of a matrix to another."""
        super().hand_over(destination, source)
        to, of = self._matrix_of[destination], self._matrix_of[source]
        self._classes[to], self._absolute[to] = self._classes[of], self._absolute[of]

    def read(self, submatrix: int, *, only_signs: bool = False, padded: bool = False) -> ClassRows:
        """Returns the elements of a submatrix."""
        content = self.content(submatrix)
        matrix, row, rows, begin, cols = self._submatrices[submatrix]
        classes, first, count = self._classes[matrix], 0, content.num_rows
        if classes is not None and rows < len(classes):
            classes = classes[row : row + rows]
            if (classes == classes[0]).all():
                first, count, classes = int(classes[0]), 1, None
        found = content.read(first, count, begin, cols, only_signs=only_signs)
        absolute = None
        if self._absolute[matrix]:
            if content.rounding is not None:
                raise IrregularError
            ends = [*found.starts[1:], cols]
            absolute = [
                any(a < begin + end and begin + start < b for a, b in self._absolute[matrix])
                for start, end in zip(found.starts, ends, strict=True)
            ]
        return ClassRows(
            found.starts,
            found.columns,
            found.constants,
            classes=classes,
            absolute=absolute,
        )

    def read_for(self, output: int, submatrix: int) -> ClassRows:
        """Returns the elements of a submatrix, as those of the rows of another one."""
        found = self.read(submatrix)
        if self.pattern.blocks[output] == self.pattern.blocks[submatrix]:
            return found
        steps = steps_between(self.pattern.labels[submatrix], self.pattern.labels[output])
        if steps is not None:
            return found.shifted(steps)
        rows = np.arange(len(self.pattern.labels[submatrix].table))
        return found.taken(self.pattern.moves(rows, output, submatrix))

    def write(
        self,
        submatrix: int,
        given: Stretches,
        *,
        adds: bool,
        places: Ints | None = None,
    ) -> None:
        """Sets or adds to the elements of a submatrix; `places` are the rows, None for all."""
        content = self.content(submatrix)
        if type(given) is not ClassRows:
            given = ClassRows(given.starts, given.columns, given.constants)
        matrix, row, rows, begin, cols = self._submatrices[submatrix]
        height = len(self.pattern.matrix_labels[matrix].table)
        if given.classes is not None and len(given.classes) != (
            rows if places is None else len(places)
        ):
            raise IrregularError
        is_all = places is None and rows == height
        self._mark_absolute(submatrix, given, replaces=is_all and not adds)
        if given.classes is None and places is None and not is_all:
            only = self._class_of_rows(content, matrix, row, rows)
            if only is not None:
                one = given.of_classes([0], None)
                content.write(0, begin, cols, one, adds=adds, places=[only])
                return
        count, before = content.num_rows, self._classes[matrix]
        number = len(given.columns[0])
        if is_all:
            parts = [(before, count), (given.classes, number)]
        else:
            # Class 0 are the rows that nothing is written to.
            written = np.zeros(height, dtype=np.int64)
            here = slice(row, row + rows) if places is None else row + places
            written[here] = 1 if given.classes is None else given.classes + 1
            parts = [(before, count), (written, number + 1)]
        if is_all and not adds and cols == self._widths[matrix]:
            parts[0] = None, 1
        (olds, news), classes = joint(parts)
        if olds != list(range(count)):
            content = self.contents[matrix] = content.taken(olds)
        self._classes[matrix] = classes
        if is_all:
            content.write(0, begin, cols, given.of_classes(news, None), adds=adds)
            return
        at = [place for place, new in enumerate(news) if new]
        some = given.of_classes([news[place] - 1 for place in at], None)
        content.write(0, begin, cols, some, adds=adds, places=at)

    write_listed = write  # submatrices are made of rows like any others

    def _class_of_rows(self, content: Content, matrix: int, row: int, rows: int) -> int | None:
        """Returns the class of some rows, and of no others; None if they are of several."""
        classes = self._classes[matrix]
        if classes is None:
            classes = np.zeros(len(self.pattern.matrix_labels[matrix].table), dtype=np.int64)
        here = classes[row : row + rows]
        found = int(here[0])
        if (here != found).any():
            return None
        if np.count_nonzero(classes == found) > rows:
            found = content.append_copy(found)
            classes = classes.copy()
            classes[row : row + rows] = found
            self._classes[matrix] = classes
        return found

    def _mark_absolute(self, submatrix: int, given: ClassRows, *, replaces: bool) -> None:
        """Notes which columns hold absolute coefficients.

        Raises:
            IrregularError: Both kinds would meet.
        """
        matrix, _, _, begin, cols = self._submatrices[submatrix]
        marked = self._absolute[matrix]
        if not marked and not any(given.absolute):
            return
        end = begin + cols
        starts = [*(begin + start for start in given.starts), end]
        new = [
            each
            for each, is_absolute in zip(pairwise(starts), given.absolute, strict=True)
            if is_absolute
        ]
        stays = [(a, min(b, begin)) for a, b in marked if a < begin]
        stays += [(max(a, end), b) for a, b in marked if b > end]
        if not replaces:
            inside = [(max(a, begin), min(b, end)) for a, b in marked if a < end and begin < b]
            if not any(map(any, given.columns)):
                new = inside
            elif inside != new:
                content = self.content(submatrix)
                if not content.is_zero(list(range(content.num_rows)), begin, cols):
                    raise IrregularError
        self._absolute[matrix] = sorted([*stays, *new])

    # -- functions -----------------------------------------------------------------------------

    def call(self, function: Function, *values: Stretches | None) -> ClassRows:
        """Returns what a function gives for each row of its arguments, None for missing ones."""
        rows = cast("tuple[ClassRows | None, ...]", values)
        picks, classes = joint(
            (None, 1) if each is None else (each.classes, len(each.columns[0])) for each in rows
        )
        keys = [
            ABSENT if each is None else each.of_classes(some, None).keys(thorough=self.thorough)
            for each, some in zip(rows, picks, strict=True)
        ]
        return _distinct(function.of_rows(*keys), classes)

    def total_of_block(self, contribution: int, submatrix: int) -> int:
        """Returns what a function of all rows of a submatrix gives."""
        return contribution

    def total(self, rows: Stretches, submatrix: int) -> int:
        """Returns the sum of what a function gives for each row of a submatrix."""
        labels, (column,) = self.pattern.labels[submatrix], rows.columns
        classes = cast("ClassRows", rows).classes
        if classes is None:
            return column[0] * labels.total % PRIME
        totals = labels.totals(classes, len(column))
        return sum([value * total for value, total in zip(column, totals, strict=True)]) % PRIME

    def numbers(self, rows: ClassRows) -> Ints:
        """Returns a number for each class: equal rows, and no others, have the same one."""
        number = self.unknowns.number
        keys = rows_of(rows.keys(thorough=self.thorough))
        return np.array([number(("row", key)) for key in keys], dtype=np.int64)

    def numbers_of_rows(self, submatrix: int) -> Ints:
        """Returns a number for each row of a submatrix."""
        rows = self.read(submatrix)
        numbers = self.numbers(rows)
        if rows.classes is not None:
            return numbers[rows.classes]
        return np.repeat(numbers, len(self.pattern.labels[submatrix].table))

    def of_windows(self, function: Function, windows: Windows, numbers: Ints) -> ClassRows:
        """Returns what a function gives for what each window holds.

        Args:
            function: The function.
            windows: The windows.
            numbers: A number for each row of their source.
        """
        held, is_absolute, classes = windows.held(numbers)
        return _distinct(function.of_each([(is_absolute, each) for each in held]), classes)

    def block_key(self, submatrix: int) -> Hashable:
        """Returns a key of all rows in their order; -1 for submatrix 0."""
        if submatrix == 0:
            return -1
        rows = self.read(submatrix)
        numbers, labels = self.numbers(rows), self.pattern.blocks[submatrix]
        if rows.classes is None or (numbers == numbers[0]).all():
            return self.unknowns.number(("rows", labels, int(numbers[0])))
        return self.unknowns.number(("rows", labels, numbers[rows.classes].tobytes()))

    def provided(self, submatrix: int) -> Stretches:
        """Returns all rows of a submatrix, to be kept."""
        return self.read(submatrix).expanded(self.pattern.labels[submatrix].elements)


def _distinct(column: Sequence[int], classes: Ints | None) -> ClassRows:
    """Returns rows of one stretch, those that are equal in one class."""
    if classes is not None:
        values = list(dict.fromkeys(column))
        if len(values) == 1:
            classes = None
        elif len(values) < len(column):
            place = {value: at for at, value in enumerate(values)}
            classes = np.array([place[value] for value in column])[classes]
        column = values
    return ClassRows([0], [list(column)], classes=classes)
