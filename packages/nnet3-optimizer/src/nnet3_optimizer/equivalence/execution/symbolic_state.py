"""The state of a symbolic execution: matrices, memos, and the behaviour so far."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NoReturn

from nnet3_computation.computation import NnetComputation

from nnet3_optimizer.equivalence.behaviour import Behaviour
from nnet3_optimizer.equivalence.execution.component_kinds import ComponentKind
from nnet3_optimizer.equivalence.pattern import IrregularError, Pattern
from nnet3_optimizer.equivalence.symbols.keys import (
    ABSENT,
    Column,
    Keys,
    key_of_row,
    num_rows,
    rows_of,
)
from nnet3_optimizer.equivalence.symbols.matrices import Content
from nnet3_optimizer.equivalence.symbols.single_row import (
    Row,
    columns_of,
    row_of,
    row_sum,
    with_columns,
)
from nnet3_optimizer.equivalence.symbols.stretches import Stretches
from nnet3_optimizer.equivalence.symbols.unknowns import Function, Unknowns
from nnet3_optimizer.equivalence.symbols.written_sequences import Written
from nnet3_optimizer.errors import EquivalenceError

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

_NOT_KNOWN = -1


class SymbolicState:
    """The values that commands read and write in a symbolic execution.

    Attributes:
        nnet: The network.
        computation: The computation.
        unknowns: The functions that stand for components.
        pattern: The rows that are followed.
        behaviour: The observable effects so far.
        components: The facts about the components of the network.
        forward, backward: For each component its unknown functions of a row.
        contents: The content of each matrix; None while it is not allocated.
        row_blocks: For each submatrix of a single row, which stands for all sequences, the block of
            its matrix; 0 for the other submatrices.
        memos: For each memo the number of the input that it was made from.
        draws: The number of runs of each random component.
        segment: The number of the segment.
        command: The position of the command that runs.
    """

    def __init__(
        self,
        nnet: Nnet,
        computation: NnetComputation,
        unknowns: Unknowns,
        pattern: Pattern,
        *,
        thorough: bool,
    ) -> None:
        """Prepares a run.

        Args:
            nnet: The network.
            computation: The computation.
            unknowns: The functions that stand for components.
            pattern: The rows that are followed.
            thorough: See `keys_of_columns`.
        """
        self.thorough = thorough
        self.nnet = nnet
        self.computation = computation
        self.unknowns = unknowns
        self.pattern = pattern
        self.behaviour = Behaviour()
        self.components = [ComponentKind.of(component) for component in nnet.components]
        numbers = range(len(self.components))
        self.forward = [unknowns.function(("forward", each)) for each in numbers]
        self.backward = [unknowns.function(("backward", each)) for each in numbers]
        self.contents: list[Content | Row | None] = [None] * len(self.pattern.matrix_rows)
        self.memos: dict[int, int] = {}
        self.draws: dict[int, int] = {}
        self.segment = 0
        self.command = 0
        self._submatrices = places = self.pattern.submatrices
        self._matrix_of, self._row_of = places.matrix, places.row
        self._col_of, self._cols_of = places.col, places.cols
        self._rows, self._widths = self.pattern.matrix_rows, self.pattern.matrix_cols
        self._padding = self.pattern.padding
        self._is_special = frozenset(
            [
                *self._padding,
                *(each for each, (first, _) in self.pattern.parts.items() if first >= 0),
            ]
        )
        self.row_blocks = self.pattern.blocks_of_single_rows()
        self._first_sequence: dict[int, int] = {}
        self._written: dict[int, Written] = {}
        self._precomputed: dict[int, int] = {}

    def rows_of(self, submatrix: int) -> int:
        """Returns the number of rows of the pattern in a submatrix."""
        self.pattern.require_regular(submatrix)
        return self._submatrices.rows[submatrix]

    def height(self, submatrix: int) -> int:
        """Returns the number of rows that stand for a submatrix, including rows that it lacks."""
        return self._submatrices.rows[submatrix]

    def same_place(self, one: int, other: int) -> bool:
        """Whether two submatrices have the same elements, so that a component works in place."""
        if one == other:
            return True
        if self._matrix_of[one] != self._matrix_of[other]:
            return False
        if self._submatrices[one] != self._submatrices[other]:
            return False
        return self.pattern.parts.get(one) == self.pattern.parts.get(other)

    def require_same_order(self, one: int, other: int) -> None:
        """Raises an IrregularError unless row by row two submatrices belong to one sequence."""
        if self.pattern.sequences == 1:
            return
        if self.pattern.blocks[one] != self.pattern.blocks[other]:
            raise IrregularError
        self.require_same_sequences(one, other)

    def require_same_sequences(self, one: int, other: int) -> None:
        """Raises an IrregularError unless two submatrices belong to the same sequences."""
        parts = self.pattern.parts
        if not parts or not (one in parts or other in parts):
            return
        first, count = self._sequences(one)
        other_first, other_count = self._sequences(other)
        if count != other_count or (first != other_first and min(first, other_first) >= 0):
            raise IrregularError
        if first == other_first == _NOT_KNOWN:
            raise IrregularError
        for submatrix, known in ((one, other_first), (other, first)):
            if known != _NOT_KNOWN and parts[submatrix][0] == _NOT_KNOWN:
                self._first_sequence[self._matrix_of[submatrix]] = known

    def _sequences(self, submatrix: int) -> tuple[int, int]:
        """Returns the first sequence of a submatrix, as far as it is known, and their number."""
        first, count = self.pattern.parts.get(submatrix, (0, self.pattern.sequences))
        if first == _NOT_KNOWN:
            first = self._first_sequence.get(self._matrix_of[submatrix], _NOT_KNOWN)
        return first, count

    def allocate(self, submatrix: int, column: Column) -> None:
        """Allocates a matrix with one element for each row; undefined if there are none."""
        matrix = self._matrix_of[submatrix]
        rows, cols = self._rows[matrix], self._widths[matrix]
        if self._first_sequence:
            self._first_sequence.pop(matrix, None)
        if rows == 1:
            self.contents[matrix] = column[0] if column else self.unknowns.one()
        else:
            self.contents[matrix] = Content(self.unknowns, column, rows, cols)

    def allocate_zeroed(self, submatrix: int) -> None:
        """Allocates a matrix with zeros."""
        matrix = self._matrix_of[submatrix]
        if self._rows[matrix] == 1:
            self.contents[matrix] = 0
        else:
            self.allocate(submatrix, [0] * self.size(submatrix))

    def size(self, submatrix: int) -> int:
        """Returns the number of rows of the matrix of a submatrix."""
        return self._rows[self._matrix_of[submatrix]]

    def content(self, submatrix: int) -> Content:
        """Returns the content of the matrix of a submatrix.

        Raises:
            EquivalenceError: It is not allocated.
        """
        matrix = self._matrix_of[submatrix]
        content = self.contents[matrix]
        if content is None:
            if matrix in self._written:
                raise IrregularError
            raise EquivalenceError(
                f"c{self.command} uses m{matrix} while it is not allocated", what=f"m{matrix}"
            )
        if type(content) is not Content:
            cols = self._widths[matrix]
            content = self.contents[matrix] = Content.of_row(self.unknowns, content, cols)
        return content

    def _refuse(self, submatrix: int) -> NoReturn:
        """Raises an error: the matrix is not allocated, or sequences are treated differently."""
        self.content(submatrix)
        raise IrregularError

    def free(self, submatrix: int) -> None:
        """Forgets a matrix."""
        matrix = self._matrix_of[submatrix]
        if self.contents[matrix] is None:
            self._refuse(submatrix)
        self.contents[matrix] = None

    def hand_over(self, destination: int, source: int) -> None:
        """Moves the content of a matrix to another."""
        content = self.content(source)
        self.require_same_order(destination, source)
        self.contents[self._matrix_of[source]] = None
        self.contents[self._matrix_of[destination]] = content

    def read(self, submatrix: int, *, only_signs: bool = False, padded: bool = False) -> Stretches:
        """Returns the elements of a submatrix.

        Args:
            submatrix: The submatrix.
            only_signs: Whether it only matters which elements are positive.
            padded: Whether to read whole blocks, even if it is not just blocks of all sequences.
        """
        matrix, row, rows, begin, cols = self._submatrices[submatrix]
        content = self.contents[matrix]
        if content is None or (submatrix in self._padding and not padded):
            self._refuse(submatrix)
        if type(content) is not Content:
            return Stretches.of_row(columns_of(content, begin, cols))
        return content.read(row, rows, begin, cols, only_signs=only_signs)

    def read_for(self, output: int, submatrix: int) -> Stretches:
        """Returns the elements of a submatrix, for the rows of another one."""
        self.require_same_order(output, submatrix)
        return self.read(submatrix)

    def are_rows(self, one: int, *others: int) -> bool:
        """Whether all submatrices, 0 for none, have a single row each, of the same sequences."""
        block = self.row_blocks[one]
        if block:
            for other in others:
                if other and self.row_blocks[other] != block:
                    return False
        return block > 0

    def read_row(self, submatrix: int) -> Row | None:
        """Returns the elements of a submatrix of a single row; None if they include constants."""
        matrix, cols = self._matrix_of[submatrix], self._cols_of[submatrix]
        content = self.contents[matrix]
        if type(content) is Content:
            return content.read_row(self._row_of[submatrix], self._col_of[submatrix], cols)
        if content is None:
            self._refuse(submatrix)
        if cols == self._widths[matrix]:
            return content
        return columns_of(content, self._col_of[submatrix], cols)

    def row_key(self, submatrix: int) -> Hashable | None:
        """Returns the key of such a submatrix."""
        row = self.read_row(submatrix)
        return key_of_row(row) if isinstance(row, tuple) else row

    def write_row(self, submatrix: int, part: Row, *, adds: bool) -> None:
        """Sets or adds to a submatrix of a single row."""
        matrix, cols = self._matrix_of[submatrix], self._cols_of[submatrix]
        content = self.contents[matrix]
        if type(content) is Content:
            begin = self._col_of[submatrix]
            content.write_row(self._row_of[submatrix], begin, cols, part, adds=adds)
        elif content is None:
            self._refuse(submatrix)
        elif cols == self._widths[matrix]:
            self.contents[matrix] = row_sum(content, part) if adds and content else part
        else:
            begin = self._col_of[submatrix]
            if adds and content:
                part = row_sum(columns_of(content, begin, cols), part)
            whole = with_columns(content, part, begin, begin + cols, self._widths[matrix])
            self.contents[matrix] = whole

    def keys(self, submatrix: int, *, only_signs: bool = False) -> Keys:
        """Returns a key of the rows of a submatrix, equal for equal rows only."""
        return self.read(submatrix, only_signs=only_signs).keys(thorough=self.thorough)

    def write(
        self, submatrix: int, given: Stretches, *, adds: bool, places: list[int] | None = None
    ) -> None:
        """Sets or adds to the elements of a submatrix; `places` are the rows, None for all."""
        matrix, row, _, begin, cols = self._submatrices[submatrix]
        content = self.contents[matrix]
        if content is None or submatrix in self._is_special:
            self._write_part(submatrix, given, adds=adds, places=places)
        elif (
            type(content) is not Content and given.constants is None and len(given.columns[0]) == 1
        ):
            given_row = row_of(given.starts, [column[0] for column in given.columns])
            self.write_row(submatrix, given_row, adds=adds)
        else:
            self.content(submatrix).write(row, begin, cols, given, adds=adds, places=places)

    def _write_part(
        self, submatrix: int, given: Stretches, *, adds: bool, places: list[int] | None
    ) -> None:
        """Sets or adds to the elements of some sequences.

        The elements are written when all sequences have got the same; no command may touch the
        matrix before. The elements are a function of the symbols of each sequence, so if they are
        equal for all parts they are equal for all sequences.
        """
        matrix, row, _, begin, cols = self._submatrices[submatrix]
        first, count = self.pattern.parts.get(submatrix, (_NOT_KNOWN, 0))
        content = self.contents[matrix]
        if first == _NOT_KNOWN or places is not None:
            self._refuse(submatrix)
        rectangle = row, begin, cols, adds
        if content is not None:
            before = self.content(submatrix)
            self._written[matrix] = Written(before, rectangle, given.copy(), set())
            self.contents[matrix] = None
        written = self._written.get(matrix)
        if written is None:
            self._refuse(submatrix)
        sequences = range(first, first + count)
        if (
            written.rectangle != rectangle
            or not written.given.is_same(given)
            or not written.sequences.isdisjoint(sequences)
        ):
            raise IrregularError
        written.sequences.update(sequences)
        if len(written.sequences) == self.pattern.sequences:
            written.content.write(row, begin, cols, written.given, adds=adds)
            self.contents[matrix] = self._written.pop(matrix).content

    def write_listed(
        self, submatrix: int, given: Stretches, *, adds: bool, places: list[int] | None = None
    ) -> None:
        """Writes rows from a list, in whole blocks, with zeros where a submatrix lacks rows."""
        content = self.content(submatrix)
        _, row, _, begin, cols = self._submatrices[submatrix]
        if submatrix in self.pattern.parts:
            raise IrregularError
        if submatrix in self._padding and not adds:
            self.require_zeros(submatrix, self.pattern.padded_rows(submatrix))
        content.write(row, begin, cols, given, adds=adds, places=places)

    def require_zeros(self, submatrix: int, places: list[int]) -> None:
        """Raises an IrregularError unless some rows of a submatrix are zero."""
        _, row, _, begin, cols = self._submatrices[submatrix]
        if not self.content(submatrix).is_zero([row + each for each in places], begin, cols):
            raise IrregularError

    def call(self, function: Function, *values: Stretches | None) -> Stretches:
        """Returns the values of a function for each row of its arguments, None for missing ones."""
        keys = [ABSENT if each is None else each.keys(thorough=self.thorough) for each in values]
        return Stretches([0], [function.of_rows(*keys)])

    def total(self, rows: Stretches, submatrix: int) -> int:
        """Returns the sum of the values of a function over the rows of a submatrix."""
        return self.pattern.total(rows.columns[0], submatrix)

    def total_of_block(self, contribution: int, submatrix: int) -> int:
        """Returns the sum over sequences of the value of a function of all rows."""
        return self.pattern.total([contribution], submatrix)

    def provided(self, submatrix: int) -> Stretches:
        """Returns a copy of the rows of a submatrix."""
        return self.read(submatrix).copy()

    def write_unknowns(self, submatrix: int, column: Column, *, adds: bool) -> None:
        """Writes unknown rows, one element for each row."""
        self.write(submatrix, Stretches([0], [column]), adds=adds)

    def block_key(self, submatrix: int) -> Hashable:
        """Returns a key of all rows in their order; -1 for submatrix 0."""
        if submatrix == 0:
            return -1
        if self.row_blocks[submatrix]:
            key = self.row_key(submatrix)
            if key is not None:
                return self.row_blocks[submatrix], key
        self.pattern.require_regular(submatrix)
        keys, block = self.keys(submatrix), self.pattern.blocks[submatrix]
        if num_rows(keys) == 1:
            return block, *rows_of(keys)
        return self.unknowns.number(("rows", block, keys))

    def precomputed_number(self, number: int) -> int:
        """Returns a number for precomputed indexes: the same for equal ones."""
        found = self._precomputed.get(number)
        if found is None:
            value = self.computation.precomputed_indexes[number]
            found = self._precomputed[number] = self.unknowns.number_of_object(value)
        return found
