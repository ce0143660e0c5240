"""The state of a symbolic execution that follows frames; see `frames`."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from nnet3_optimizer.equivalence.field import PRIME
from nnet3_optimizer.equivalence.frames_pattern import FramesPattern
from nnet3_optimizer.equivalence.keys import Column
from nnet3_optimizer.equivalence.matrices import Content
from nnet3_optimizer.equivalence.pattern import IrregularError
from nnet3_optimizer.equivalence.state import State
from nnet3_optimizer.equivalence.stretches import Stretches


@attrs.frozen(eq=False)
class _Parts:
    """What was written, part by part, to columns of a matrix that were undefined before.

    Attributes:
        content: What the matrix held.
        begin, cols: The columns.
        rows: The rows of each part.
        sum: The parts so far: zeros elsewhere.
    """

    content: Content
    begin: int
    cols: int
    rows: list[range]
    sum: Content


class FramesState(State):
    """What commands read and write, by frames.

    A submatrix may hold some of the rows of its frames. What is read is the element of the whole
    frame; what is written is multiplied by the share of the sequences that it holds.
    """

    pattern: FramesPattern

    def _prepare(self) -> None:
        self._is_special = frozenset(self.pattern.partial)
        self._in_parts = frozenset(self._matrix_of[each] for each in self._is_special)
        self._parts: dict[int, _Parts] = {}

    def allocate(self, submatrix: int, column: Column) -> None:
        """Allocates a matrix; what is undefined stays so, as it may be written to in parts."""
        matrix = self._matrix_of[submatrix]
        self._parts.pop(matrix, None)
        if column or matrix not in self._in_parts:
            super().allocate(submatrix, column)
        else:
            rows, cols = self._rows[matrix], self._widths[matrix]
            self.contents[matrix] = Content(self.unknowns, [], rows, cols)

    def content(self, submatrix: int) -> Content:
        """Returns what the matrix of a submatrix holds.

        Raises:
            EquivalenceError: It is not allocated.
            IrregularError: Some of its parts are still to come.
        """
        if self._matrix_of[submatrix] in self._parts:
            raise IrregularError
        return super().content(submatrix)

    write_listed = State.write  # a submatrix is one like any other

    def _write_part(
        self, submatrix: int, given: Stretches, *, adds: bool, places: list[int] | None
    ) -> None:
        """Sets or adds to some of the rows of frames."""
        matrix, row, rows, begin, cols = self._submatrices[submatrix]
        shares = self.pattern.part_of[submatrix].shares
        if places is not None:
            shares = [shares[place] for place in places]
        content = self.contents[matrix]
        if content is None and matrix in self._parts and not adds and places is None:
            self._write_to_undefined(submatrix, _times(given, shares))
            return
        content = self.content(submatrix)
        if not adds:
            if content.is_undefined(begin, cols) and places is None:
                zeros = Content(self.unknowns, [0] * content.num_rows, content.num_rows, cols)
                self._parts[matrix] = _Parts(content, begin, cols, [], zeros)
                self.contents[matrix] = None
                self._write_to_undefined(submatrix, _times(given, shares))
                return
            before = content.read(row, rows, begin, cols)
            if places is not None:
                before = before.taken(places)
            stays = _times(before, [1 - share for share in shares])
            content.write(row, begin, cols, stays, adds=False, places=places)
        content.write(row, begin, cols, _times(given, shares), adds=True, places=places)

    def _write_to_undefined(self, submatrix: int, given: Stretches) -> None:
        """Sets some rows of frames that are undefined: till all are there they may not be read."""
        matrix, row, _, begin, cols = self._submatrices[submatrix]
        parts, part = self._parts[matrix], self.pattern.part_of[submatrix]
        rows = range(part.row, part.row + len(part.frame))
        is_new = all(rows.stop <= each.start or each.stop <= rows.start for each in parts.rows)
        if (begin, cols) != (parts.begin, parts.cols) or not is_new:
            raise IrregularError
        parts.rows.append(rows)
        parts.sum.write(row, 0, cols, given, adds=True)
        if sum(map(len, parts.rows)) == len(part.layout.frame):
            whole = parts.sum.read(0, parts.sum.num_rows, 0, cols)
            parts.content.write(0, begin, cols, whole, adds=False)
            self.contents[matrix] = self._parts.pop(matrix).content


def _times(given: Stretches, factors: Sequence[int]) -> Stretches:
    """Returns rows, each times a factor."""
    return given.mapped(
        lambda column: [
            value * factor % PRIME for value, factor in zip(column, factors, strict=True)
        ]
    )
