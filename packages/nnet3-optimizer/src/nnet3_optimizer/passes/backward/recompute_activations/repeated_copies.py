"""Matrices that are made again by the copies that made them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from nnet3_computation.analysis import COL_OFFSET, NUM_COLS, CommandKinds, Reads
from nnet3_computation.arrays import Bools, Ids, where
from nnet3_computation.commands import CopyRows, CopyRowsMulti, MatrixCopy, SetConst

from nnet3_optimizer.passes.backward.recompute_activations.kept import NOTHING, Kept, Recipe

_COPIES = CommandKinds.of(MatrixCopy, CopyRows, CopyRowsMulti, SetConst)


class _Copies(NamedTuple):
    """The commands that write to a matrix, at least one of them a copy.

    Attributes:
        command: (N,) the commands.
        submatrix: (N,) the submatrices that they write to.
        is_copy: (N,) bool, whether they are copies.
        reads: The reads of the copies.
        sources: The matrices that the copies read.
        is_changed: Whether anything writes to one of these matrices later.
    """

    command: Ids
    submatrix: Ids
    is_copy: Bools
    reads: Reads
    sources: set[int]
    is_changed: bool


class RepeatedCopies:
    """Matrices that were copied as a whole from elsewhere, or from one part of themselves."""

    def __init__(self, kept: Kept) -> None:
        self._kept, self._draft, self._uses = kept, kept.draft, kept.uses
        self._made = self._written_by_copies(kept.writes)

    def _written_by_copies(self, writes: Ids) -> dict[int, _Copies]:
        """By matrix its writes, if they are copies and no other command writes all of it."""
        uses = self._uses
        is_copy = _COPIES.among(self._draft.opcodes.take(uses.command.take(writes)))
        otherwise = ~is_copy & self._draft.layout.is_whole.take(uses.submatrix.take(writes))
        fits = np.zeros(len(self._draft.matrices), dtype=np.bool_)
        fits[uses.matrix.take(writes[is_copy])] = True
        fits[uses.matrix.take(writes[otherwise])] = False
        chosen = fits.take(uses.matrix.take(writes))
        writes, is_copy = writes[chosen], is_copy[chosen]
        matrix, command = uses.matrix.take(writes), uses.command.take(writes)
        submatrix = uses.submatrix.take(writes)
        # Each copy writes to one matrix.
        target = np.zeros(len(self._draft.table), dtype=np.int64)
        target[command] = matrix
        reads = uses.reads_of(command[is_copy])
        sources = reads.matrix.tolist()
        is_changed = (uses.last_write.take(reads.matrix) > reads.command).tolist()
        matrices = where(fits)
        bounds, of_reads = (
            np.append(each.searchsorted(matrices), len(each)).tolist()
            for each in (matrix, target.take(reads.command))
        )
        made = {}
        for number, of in enumerate(matrices.tolist()):
            own = slice(bounds[number], bounds[number + 1])
            read = slice(of_reads[number], of_reads[number + 1])
            made[of] = _Copies(
                command[own],
                submatrix[own],
                is_copy[own],
                Reads(*[each[read] for each in reads]),
                set(sources[read]),
                any(is_changed[read]),
            )
        return made

    def find(self, matrix: int) -> Recipe | None:
        """Returns the recipe for a matrix; None if there is none."""
        made, part = self._made.get(matrix), NOTHING
        if made is None:
            return None
        commands = made.command
        if not made.is_copy.all():
            others = ~made.is_copy
            if commands[others][-1] >= commands[made.is_copy][0]:
                return None
            found = self._common_part(made.submatrix[others], made.submatrix[made.is_copy])
            if found is None:
                return None
            part, commands = found, commands[made.is_copy]
        if made.is_changed and not self._uses.stay(made.reads, self._kept.first_backward(matrix)):
            return None
        if matrix in made.sources:
            own = where(made.reads.matrix == matrix)
            if not part or not self._are_read_from(part, made.reads, own):
                return None
        steps = self._draft.table.take(commands, axis=0)
        return self._kept.recipe(matrix, steps, made.sources - {matrix}, part)

    def _are_read_from(self, part: int, reads: Reads, own: Ids) -> bool:
        """Whether some reads are from this part, and not through lists."""
        parts = self._uses.rectangles
        through_list = self._draft.opcodes[reads.command[own]] == CopyRowsMulti.OPCODE
        return not through_list.any() and all(
            parts[part].contains(parts[each]) for each in set(reads.submatrix[own].tolist())
        )

    def _common_part(self, others: Ids, copied: Ids) -> int | None:
        """The submatrix that all other commands write to; None if it does not serve as the part."""
        part = int(others[0])
        parts = self._uses.rectangles
        if not all(parts[part].contains(parts[each]) for each in set(others.tolist())):
            return None
        own, beside = parts[part], self._draft.submatrices[copied]
        is_beside = (beside[:, COL_OFFSET] >= own.col + own.cols) | (
            beside[:, COL_OFFSET] + beside[:, NUM_COLS] <= own.col
        )
        return part if is_beside.all() else None
