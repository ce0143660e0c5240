"""The state of a symbolic execution: matrices, memos, and what was seen from outside."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, NoReturn

import attrs
from nnet3_compiler.computation import NnetComputation
from nnet3_descriptors.components.properties import ComponentProperties as Property

from nnet3_optimizer.equivalence.behaviour import Behaviour
from nnet3_optimizer.equivalence.matrices import Content, Stretches
from nnet3_optimizer.equivalence.pattern import IrregularError, Pattern, Rectangle
from nnet3_optimizer.equivalence.unknowns import Unknowns
from nnet3_optimizer.errors import EquivalenceError

if TYPE_CHECKING:
    from nnet3_descriptors import Component, Nnet

_RELU = "RectifiedLinearComponent"
_COPIES = "NoOpComponent", "BackpropTruncationComponent"
"""What gives its input times a scale."""

# As plain numbers: operations on flags take several times as long.
_SIMPLE, _MEMO, _RANDOM = int(Property.SIMPLE), int(Property.USES_MEMO), int(Property.RANDOM)
_PROPAGATE_ADDS, _BACKPROP_ADDS = int(Property.PROPAGATE_ADDS), int(Property.BACKPROP_ADDS)
_NEEDS_INPUT = int(Property.BACKPROP_NEEDS_INPUT)
_NEEDS_OUTPUT = int(Property.BACKPROP_NEEDS_OUTPUT)
_UPDATABLE = int(Property.UPDATABLE)


_NOT_KNOWN = -1


@attrs.frozen(eq=False)
class _Written:
    """What was written for some sequences of a matrix so far.

    Attributes:
        content: What the matrix held before.
        rectangle: First row, first column and columns, and whether to add.
        given: What was written, the same for all of them.
        sequences: The sequences.
    """

    content: Content
    rectangle: tuple[int, int, int, bool]
    given: Stretches
    sequences: set[int]


@attrs.frozen
class ComponentKind:
    """What has to be known of a component to run it on symbols.

    Attributes:
        works_by_rows: Whether it is an unknown function of each row, not of all rows together.
        propagate_adds, backprop_adds: Whether it adds to its output and its input derivative.
        backprop_needs_input, backprop_needs_output: What it looks at when it runs backward.
        is_random: Whether it gives something else each time.
        is_updatable: Whether it has parameters.
        scale: Its output is its input times this; None for components that compute.
        is_relu: Whether it looks only at which of its outputs are positive when it runs backward.
    """

    works_by_rows: bool
    propagate_adds: bool
    backprop_adds: bool
    backprop_needs_input: bool
    backprop_needs_output: bool
    is_random: bool
    is_updatable: bool
    scale: float | None
    is_relu: bool

    @classmethod
    def of(cls, component: Component) -> ComponentKind:
        """Returns the kind of a component."""
        has = int(component.properties)
        return cls(
            works_by_rows=has & (_SIMPLE | _MEMO | _RANDOM) == _SIMPLE,
            propagate_adds=has & _PROPAGATE_ADDS != 0,
            backprop_adds=has & _BACKPROP_ADDS != 0,
            backprop_needs_input=has & _NEEDS_INPUT != 0,
            backprop_needs_output=has & _NEEDS_OUTPUT != 0,
            is_random=has & _RANDOM != 0,
            is_updatable=has & _UPDATABLE != 0,
            scale=float(getattr(component, "scale", 1.0)) if component.type in _COPIES else None,
            is_relu=component.type == _RELU,
        )


class State:
    """What commands read and write while a computation runs on symbols.

    Attributes:
        nnet: The network.
        computation: The computation.
        unknowns: The functions that stand for components.
        pattern: The rows that are followed.
        behaviour: What was seen from outside so far.
        components: What the components of the network are like.
        contents: What each matrix holds; None while it is not allocated.
        memos: What each memo holds: the number of what it was made from.
        draws: How often each random component ran.
        segment: The number of the segment.
        command: The position of the command that runs.
    """

    def __init__(
        self, nnet: Nnet, computation: NnetComputation, unknowns: Unknowns, sequences: int
    ) -> None:
        """Prepares a run.

        Args:
            nnet: The network.
            computation: The computation.
            unknowns: The functions that stand for components.
            sequences: How many sequences it treats alike; 1 to follow all rows.
        """
        self.nnet = nnet
        self.computation = computation
        self.unknowns = unknowns
        self.pattern = Pattern(computation, sequences)
        self.behaviour = Behaviour()
        self.components = [ComponentKind.of(component) for component in nnet.components]
        self.contents: list[Content | None] = [None] * len(self.pattern.sizes)
        self.memos: dict[int, int] = {}
        self.draws: dict[int, int] = {}
        self.segment = 0
        self.command = 0
        self._submatrices: list[Rectangle] = self.pattern.submatrices
        self._padding = self.pattern.padding
        self._is_special = frozenset(
            [
                *self._padding,
                *(each for each, (first, _) in self.pattern.parts.items() if first >= 0),
            ]
        )
        self._first_sequence: dict[int, int] = {}
        self._written: dict[int, _Written] = {}
        self._precomputed: dict[int, int] = {}

    def rows_of(self, submatrix: int) -> int:
        """Returns how many rows of the pattern a submatrix has."""
        self.pattern.require_regular(submatrix)
        return self._submatrices[submatrix][2]

    def same_place(self, one: int, other: int) -> bool:
        """Whether two submatrices are the same elements, so that a component works in place."""
        if self._submatrices[one] != self._submatrices[other]:
            return False
        return self.pattern.parts.get(one) == self.pattern.parts.get(other)

    def require_same_order(self, one: int, other: int) -> None:
        """Raises an IrregularError unless row by row two submatrices are of one sequence."""
        if self.pattern.sequences == 1:
            return
        if self.pattern.blocks[one] != self.pattern.blocks[other]:
            raise IrregularError
        self.require_same_sequences(one, other)

    def require_same_sequences(self, one: int, other: int) -> None:
        """Raises an IrregularError unless two submatrices are of the same sequences."""
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
                self._first_sequence[self._submatrices[submatrix][0]] = known

    def _sequences(self, submatrix: int) -> tuple[int, int]:
        """Returns the first sequence of a submatrix, as far as it is known, and their number."""
        first, count = self.pattern.parts.get(submatrix, (0, self.pattern.sequences))
        if first == _NOT_KNOWN:
            first = self._first_sequence.get(self._submatrices[submatrix][0], _NOT_KNOWN)
        return first, count

    def allocate(self, submatrix: int, column: list[int]) -> None:
        """Allocates a matrix with one element for each row."""
        matrix = self._submatrices[submatrix][0]
        cols = self.pattern.sizes[matrix][1]
        if self._first_sequence:
            self._first_sequence.pop(matrix, None)
        self.contents[matrix] = Content(self.unknowns, column, cols)

    def allocate_zeroed(self, submatrix: int) -> None:
        """Allocates a matrix with zeros."""
        rows, _ = self.pattern.sizes[self._submatrices[submatrix][0]]
        self.allocate(submatrix, [0] * rows)

    def size(self, submatrix: int) -> int:
        """Returns the number of rows of the matrix of a submatrix."""
        return self.pattern.sizes[self._submatrices[submatrix][0]][0]

    def content(self, submatrix: int) -> Content:
        """Returns what the matrix of a submatrix holds.

        Raises:
            EquivalenceError: It is not allocated.
        """
        matrix = self._submatrices[submatrix][0]
        content = self.contents[matrix]
        if content is None:
            if matrix in self._written:
                raise IrregularError
            raise EquivalenceError(
                f"c{self.command} uses m{matrix} while it is not allocated", what=f"m{matrix}"
            )
        return content

    def _refuse(self, submatrix: int) -> NoReturn:
        """Raises an error: the matrix is not allocated, or sequences are treated differently."""
        self.content(submatrix)
        raise IrregularError

    def free(self, submatrix: int) -> None:
        """Forgets a matrix."""
        matrix = self._submatrices[submatrix][0]
        if self.contents[matrix] is None:
            self._refuse(submatrix)
        self.contents[matrix] = None

    def hand_over(self, destination: int, source: int) -> None:
        """Moves the content of a matrix to another."""
        content = self.content(source)
        self.require_same_order(destination, source)
        self.contents[self._submatrices[source][0]] = None
        self.contents[self._submatrices[destination][0]] = content

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
        return content.read(row, rows, begin, cols, only_signs=only_signs)

    def keys(self, submatrix: int, *, only_signs: bool = False) -> Iterable[Hashable]:
        """Returns a value for each row of a submatrix, equal for equal rows only."""
        matrix, row, rows, begin, _ = self._submatrices[submatrix]
        content = self.contents[matrix]
        if begin == 0 and content is not None and content.is_plain:
            column = content.columns[0]
            if submatrix not in self._padding:
                return column if rows == len(column) else column[row : row + rows]
        return self.read(submatrix, only_signs=only_signs).keys()

    def write(
        self, submatrix: int, given: Stretches, *, adds: bool, places: list[int] | None = None
    ) -> None:
        """Sets or adds to the elements of a submatrix; `places` are the rows, None for all."""
        matrix, row, _, begin, cols = self._submatrices[submatrix]
        content = self.contents[matrix]
        if content is None or submatrix in self._is_special:
            self._write_part(submatrix, given, adds=adds, places=places)
            return
        content.write(row, begin, cols, given, adds=adds, places=places)

    def _write_part(
        self, submatrix: int, given: Stretches, *, adds: bool, places: list[int] | None
    ) -> None:
        """Sets or adds to the elements of some sequences.

        They are written when the same has come for all sequences; nothing may be done to the matrix
        before. What is written for some sequences is a function of what is known of each of them,
        so if it is the same for all parts it is for all sequences.
        """
        matrix, row, _, begin, cols = self._submatrices[submatrix]
        first, count = self.pattern.parts.get(submatrix, (_NOT_KNOWN, 0))
        content = self.contents[matrix]
        if first == _NOT_KNOWN or places is not None:
            self._refuse(submatrix)
        rectangle = row, begin, cols, adds
        if content is not None:
            self._written[matrix] = _Written(content, rectangle, given.copy(), set())
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
        """The same with rows from a list, in whole blocks: zeros where a submatrix lacks rows."""
        content = self.content(submatrix)
        _, row, _, begin, cols = self._submatrices[submatrix]
        if submatrix in self.pattern.parts:
            raise IrregularError
        if submatrix in self._padding and not adds:
            lacking = [row + each for each in self.pattern.padded_rows(submatrix)]
            if not content.is_zero(lacking, begin, cols):
                raise IrregularError
        content.write(row, begin, cols, given, adds=adds, places=places)

    def write_unknowns(self, submatrix: int, column: list[int], *, adds: bool) -> None:
        """Writes unknown rows, one element for each row."""
        matrix, row, _, begin, cols = self._submatrices[submatrix]
        content = self.contents[matrix]
        if content is None or submatrix in self._is_special:
            self._write_part(submatrix, Stretches([0], [column]), adds=adds, places=None)
            return
        content.write_unknowns(row, begin, cols, column, adds=adds)

    def block_number(self, submatrix: int, *, only_signs: bool = False) -> int:
        """Returns a number for all rows in their order; -1 for submatrix 0."""
        if submatrix == 0:
            return -1
        self.pattern.require_regular(submatrix)
        keys = self.keys(submatrix, only_signs=only_signs)
        return self.unknowns.number(("rows", self.pattern.blocks[submatrix], tuple(keys)))

    def precomputed_number(self, number: int) -> int:
        """Returns a number for precomputed indexes: the same for equal ones."""
        found = self._precomputed.get(number)
        if found is None:
            value = self.computation.precomputed_indexes[number]
            found = self._precomputed[number] = self.unknowns.number_of_object(value)
        return found
