"""The accesses of the commands to parts of matrices: one trace for all rules."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence

import attrs
from nnet3_computation import NnetComputation
from nnet3_computation import commands as c
from nnet3_computation.commands import Access, Command, OperandKind

from nnet3_runtime_cuda.lowering.areas import Area, Areas, Place


@attrs.frozen
class Use:
    """A command touches an area of a matrix.

    Attributes:
        position: Of the command.
        area: The area.
        changes: Whether the command may change it; so do those that allocate and free the matrix.
    """

    position: int
    area: Area
    changes: bool


class Trace:
    """The uses of all matrices, in the order of the commands.

    Attributes:
        computation: The computation.
        commands: All commands.
        areas: The areas of its submatrices.
        label: Position of the label that a loop goes back to; None without a loop.
    """

    def __init__(self, computation: NnetComputation) -> None:
        """Collects the uses."""
        self.computation = computation
        self.commands: list[Command] = list(computation.commands)
        self.areas = Areas(computation)
        self.label: int | None = None
        self._uses: dict[int, list[Use]] = defaultdict(list)
        for position, command in enumerate(self.commands):
            if isinstance(command, c.GotoLabel):
                self.label = command.label
            for (matrix, area), changes in self._touched(command):
                self._uses[matrix].append(Use(position, area, changes))

    def _touched(self, command: Command) -> Iterator[tuple[Place, bool]]:
        """The places that a command touches, and whether it may change them."""
        for operand in command.OPERANDS:
            value = getattr(command, operand.name)
            changes = operand.access != Access.READ
            if operand.kind in (OperandKind.SUBMATRIX, OperandKind.WHOLE_MATRIX) and value:
                yield self.areas.of(value), changes
            elif operand.kind == OperandKind.INDEXES_MULTI:
                pairs = self.computation.indexes_multi[value]
                for submatrix in set(pairs[:, 0].tolist()) - {-1}:
                    yield self.areas.of(submatrix), changes

    def between(self, matrix: int, after: int, before: int) -> Sequence[Use]:
        """The uses of a matrix after one position and before another."""
        uses = self._uses[matrix]
        first = bisect.bisect_right(uses, after, key=lambda use: use.position)
        last = bisect.bisect_left(uses, before, key=lambda use: use.position)
        return uses[first:last]

    def changes_before(self, matrix: int, before: int) -> Iterator[Use]:
        """The changes of a matrix before a position, the last change first."""
        uses = self._uses[matrix]
        last = bisect.bisect_left(uses, before, key=lambda use: use.position)
        return (uses[number] for number in range(last - 1, -1, -1) if uses[number].changes)

    def is_touched(self, place: Place, after: int, before: int, *, changes_only: bool) -> bool:
        """Whether commands between two positions touch a place, or change it."""
        matrix, area = place
        return any(
            (use.changes or not changes_only) and use.area.overlaps(area)
            for use in self.between(matrix, after, before)
        )

    def is_rewritten(self, matrix: int, after: int, before: int) -> bool:
        """Whether commands between two positions change a matrix otherwise than by freeing it."""
        return any(
            use.changes and not isinstance(self.commands[use.position], c.DeallocMatrix)
            for use in self.between(matrix, after, before)
        )

    def is_freed(self, matrix: int, before: int) -> bool:
        """Whether the last change of a matrix before a position was to free it."""
        last = next(self.changes_before(matrix, before), None)
        return last is not None and isinstance(self.commands[last.position], c.DeallocMatrix)

    def is_zeroed(self, matrix: int, before: int) -> bool:
        """Whether, before a position, no command has used a matrix since it was zeroed."""
        uses = self.between(matrix, -1, before)
        return bool(uses) and isinstance(self.commands[uses[-1].position], c.AllocMatrixZeroed)

    def is_one_round(self, first: int, last: int) -> bool:
        """Whether two positions are both before a loop, or both in the same round of it."""
        return self.label is None or (first < self.label) == (last < self.label)


def is_end(command: Command) -> bool:
    """Whether a command gives a matrix memory or takes it away: the content is lost."""
    return isinstance(command, c.AllocMatrixUndefined | c.AllocMatrixZeroed | c.DeallocMatrix)
