"""Ways to make the content of a matrix again, at little cost, from matrices that are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from nnet3_computation import commands as c
from nnet3_computation.analysis import (
    COL_OFFSET,
    MATRIX,
    NUM_COLS,
    NUM_ROWS,
    ROW_OFFSET,
    CommandKinds,
    Reads,
)
from nnet3_computation.arrays import Bools, Ids, expand_ranges, where
from nnet3_descriptors.values import remembered

from nnet3_optimizer.draft import Draft, Edit

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


OUTPUT, INPUT, INDEXES = range(c.FIRST_OPERAND_COLUMN, c.FIRST_OPERAND_COLUMN + 3)
"""The columns of the table for the output, the input and the list of copies and additions."""

NOTHING = 0
_ONE = c.alpha_bits(1.0)

_Value = TypeVar("_Value")


class Recipe(NamedTuple):
    """Commands that make the content of a matrix again before the backward part reads it.

    Attributes:
        matrix: The matrix.
        last_forward, first_backward: The last command of the forward part and the first of the
            backward part that use it; between the two its memory is free.
        steps: (N, TABLE_WIDTH) the commands that write all elements that are read later.
        sources: The matrices that they read, other than the matrix itself.
        part: The submatrix that is kept in a matrix of its own, from which the rest is copied; 0
            for none. The steps that read it name it.
    """

    matrix: int
    last_forward: int
    first_backward: int
    steps: c.Table
    sources: tuple[int, ...]
    part: int = NOTHING


class Kept:
    """Matrices that both parts access, and that no command writes to after the forward part.

    Attributes:
        draft: The draft.
        edit: Gets what recipes need.
        uses: The accesses to submatrices, by matrix.
        writes: (N,) the accesses that write to these matrices.
    """

    def __init__(self, draft: Draft, marker: int, edit: Edit, candidates: Ids) -> None:
        """Looks at all candidates at once.

        Args:
            draft: The draft.
            marker: The command between the two parts.
            edit: Gets what recipes need.
            candidates: Matrices that both parts use.
        """
        self.draft = draft
        self.edit = edit
        self.uses = uses = draft.analysis.uses
        read_only = candidates[uses.last_write[candidates] < marker]
        before, after = uses.around(read_only, marker)
        self._gap: dict[int, tuple[int, int]] = dict(
            zip(read_only.tolist(), zip(before.tolist(), after.tolist(), strict=True), strict=True)
        )
        at = uses.of_matrices(read_only)
        at = at[uses.command[at] < marker]
        self.writes = at[uses.writes[at]]
        rows = draft.table[uses.command[at]]
        # With scale 1, and after the last write.
        self._reads = at[
            ~uses.writes[at]
            & (rows[:, c.ALPHA_COLUMN] == _ONE)
            & (uses.command[at] >= uses.last_write[uses.matrix[at]])
        ]
        self._kinds = draft.opcodes[uses.command[self._reads]]

    def reads_by(self, kinds: CommandKinds) -> Ids:
        """Returns the accesses of commands of some kinds that read candidates unscaled."""
        found: Ids = self._reads[kinds.among(self._kinds)]
        return found

    def first_backward(self, matrix: int) -> int:
        """Returns the first command of the backward part that reads a matrix."""
        return self._gap[matrix][1]

    def recipe(self, matrix: int, steps: c.Table, sources: set[int], part: int = NOTHING) -> Recipe:
        """Returns a recipe for a matrix; see `Recipe` for steps, sources and part."""
        last_forward, first_backward = self._gap[matrix]
        return Recipe(
            matrix=matrix,
            last_forward=last_forward,
            first_backward=first_backward,
            steps=steps,
            sources=tuple(sorted(sources)),
            part=part,
        )


def by_key(keys: Ids, values: Iterable[_Value]) -> dict[int, list[_Value]]:
    """Returns the values of each key, in their order."""
    found: dict[int, list[_Value]] = {}
    for key, value in zip(keys.tolist(), values, strict=True):
        found.setdefault(key, []).append(value)
    return found


def copy_of(output: int, given: int) -> list[int]:
    """Returns the row of the command that copies one submatrix to another."""
    row = [0] * c.TABLE_WIDTH
    row[c.OPCODE_COLUMN], row[c.ALPHA_COLUMN] = c.MatrixCopy.OPCODE, _ONE
    row[OUTPUT], row[INPUT] = output, given
    return row


RecipesOf = Callable[[int], Iterator[Recipe]]
"""Gives the recipes for a matrix, the most exact first."""


def recipe_finder(
    draft: Draft, marker: int, edit: Edit, candidates: Ids, as_bits: Ids
) -> RecipesOf:
    """Prepares the three ways for all candidates at once; returns what finds their recipes.

    Lists of rows and submatrices that recipes need are added to the edit; `renumber` removes the
    unused ones.

    Args:
        draft: The draft.
        marker: The command between the two parts.
        edit: Gets what recipes need.
        candidates: Matrices that both parts use.
        as_bits: Matrices that `memory_compression` will keep as bits.
    """
    kept = Kept(draft, marker, edit, candidates)
    ways = RepeatedCopies(kept), CopiesElsewhere(kept), TermsOfSums(kept)
    bits = frozenset(as_bits.tolist())

    def recipes(matrix: int) -> Iterator[Recipe]:
        for way in ways:
            found = way.find(matrix)
            if found is not None and bits.isdisjoint(found.sources):
                yield found

    return recipes


_COPIES = CommandKinds.of(c.MatrixCopy, c.CopyRows, c.CopyRowsMulti, c.SetConst)


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
        parts = self._uses.rectangle
        through_list = self._draft.opcodes[reads.command[own]] == c.CopyRowsMulti.OPCODE
        return not through_list.any() and all(
            parts(part).contains(parts(each)) for each in set(reads.submatrix[own].tolist())
        )

    def _common_part(self, others: Ids, copied: Ids) -> int | None:
        """The submatrix that all other commands write to; None if it does not serve as the part."""
        part = int(others[0])
        parts = self._uses.rectangle
        if not all(parts(part).contains(parts(each)) for each in set(others.tolist())):
            return None
        own, beside = parts(part), self._draft.submatrices[copied]
        is_beside = (beside[:, COL_OFFSET] >= own.col + own.cols) | (
            beside[:, COL_OFFSET] + beside[:, NUM_COLS] <= own.col
        )
        return part if is_beside.all() else None


_FROM_ONE_MATRIX = CommandKinds.of(c.MatrixCopy, c.CopyRows)


class CopiesElsewhere:
    """Matrices whose rows were all copied to one other matrix."""

    def __init__(self, kept: Kept) -> None:
        self._kept, self._draft, self._uses = kept, kept.draft, kept.uses
        self._copied = self._copies(kept.reads_by(_FROM_ONE_MATRIX))

    def _copies(self, reads: Ids) -> dict[int, list[int]]:
        """By matrix the commands that copy some of its rows, whole ones, to other matrices."""
        matrix, command = self._uses.matrix[reads], self._uses.command[reads]
        given, output = self._operands(command)
        num_rows, num_cols = self._draft.matrices.T
        fits = (given[:, NUM_COLS] == num_cols[matrix]) & (output[:, MATRIX] != matrix)
        copied = np.bincount(matrix, output[:, NUM_ROWS] * fits, minlength=len(num_rows))
        fits &= copied[matrix] >= num_rows[matrix]
        return by_key(matrix[fits], command[fits].tolist())

    def _operands(self, commands: Ids) -> tuple[c.Table, c.Table]:
        """The submatrices that copies read and write, (N, 5) each."""
        rows = self._draft.table[commands]
        return self._draft.submatrices[rows[:, INPUT]], self._draft.submatrices[rows[:, OUTPUT]]

    def find(self, matrix: int) -> Recipe | None:
        """Returns the recipe for a matrix; None if there is none."""
        if matrix not in self._copied:
            return None
        commands = np.array(self._copied[matrix])
        given, output = self._operands(commands)
        num_rows = int(self._draft.matrices[matrix, 0])
        first_backward = self._kept.first_backward(matrix)
        places = output[:, [MATRIX, COL_OFFSET]].tolist()
        for source, column in dict.fromkeys(map(tuple, places)):
            there = (output[:, MATRIX] == source) & (output[:, COL_OFFSET] == column)
            counts = output[there, NUM_ROWS].astype(np.int64)
            if counts.sum() < num_rows:
                continue
            lost = self._uses.rows_written_to(output[there], commands[there], first_backward)
            if lost is not None and counts.sum() - lost.sum() < num_rows:
                continue
            from_rows = self._rows_copied(commands[there], given[there], counts)
            if lost is not None:
                from_rows = np.where(lost, NO_ROW, from_rows)
            there_rows = expand_ranges(output[there, ROW_OFFSET].astype(np.int64), counts)
            rows = inverted(from_rows, there_rows, num_rows)
            if rows is not None:
                step = self._gather(matrix, source, column, rows)
                return self._kept.recipe(matrix, np.array([step], np.int32), {source})
        return None

    def _rows_copied(self, commands: Ids, given: c.Table, counts: Ids) -> Rows:
        """Which rows of a matrix commands copy, or NO_ROW, one command after the other.

        Args:
            commands: (N,) the commands.
            given: (N, 5) what they copy from.
            counts: (N,) how many rows they copy.
        """
        table = self._draft.table[commands]
        if (table[:, c.OPCODE_COLUMN] == c.MatrixCopy.OPCODE).all():
            return expand_ranges(given[:, ROW_OFFSET].astype(np.int64), counts)
        rows = []
        for row, first, count in zip(
            table.tolist(), given[:, ROW_OFFSET].tolist(), counts.tolist(), strict=True
        ):
            if row[c.OPCODE_COLUMN] == c.CopyRows.OPCODE:
                indexes = self._draft.indexes[row[INDEXES]]
                rows.append(np.where(indexes < 0, NO_ROW, indexes + first) if first else indexes)
            else:
                rows.append(np.arange(first, first + count, dtype=np.int32))
        return np.concatenate(rows)

    def _gather(self, matrix: int, source: int, column: int, rows: Rows) -> list[int]:
        """The command that copies these rows of a matrix, from a column on, to another matrix."""
        cols = int(self._draft.matrices[matrix, 1])
        whole = int(self._draft.layout.whole_submatrix[matrix])
        given = [source, int(rows[0]), len(rows), column, cols]
        if count_up(rows):
            return copy_of(whole, int(self._kept.edit.submatrices(np.array([given]))[0]))
        # Only up to the rows that are read: the others may not be written yet.
        first, last = int(rows.min()), int(rows.max())
        given[ROW_OFFSET], given[NUM_ROWS] = first, last + 1 - first
        row = copy_of(whole, int(self._kept.edit.submatrices(np.array([given]))[0]))
        row[c.OPCODE_COLUMN], row[INDEXES] = (
            c.CopyRows.OPCODE,
            self._kept.edit.indexes(rows - first),
        )
        return row


Rows = Ids | c.Table
"""Rows, (N,)."""

NO_ROW = -1
"""Stands for no row."""


def inverted(sources: Rows, targets: Rows, count: int) -> c.Table | None:
    """Returns the target of each of the first `count` rows of a matrix that was copied.

    Args:
        sources: (N,) the rows that were copied; NO_ROW does not count.
        targets: (N,) the rows of the other matrix that they were copied to.
        count: The number of rows.

    Returns:
        (count,) rows of the other matrix; None if some row was copied nowhere.
    """
    rows = np.full(count + 1, NO_ROW, np.int32)  # the last entry takes targets of NO_ROW
    rows[sources] = targets
    return rows[:-1] if rows[:-1].min(initial=0) >= 0 else None


def count_up(rows: Rows) -> bool:
    """Whether rows, (N,) and at least one, follow one another."""
    return int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((rows[1:] > rows[:-1]).all())


_TERMS = CommandKinds.of(c.MatrixCopy, c.MatrixAdd)
_ADDITIONS = {
    c.MatrixCopy.OPCODE: c.MatrixAdd.OPCODE,
    c.MatrixAdd.OPCODE: c.MatrixAdd.OPCODE,
    c.CopyRows.OPCODE: c.AddRows.OPCODE,
    c.AddRows.OPCODE: c.AddRows.OPCODE,
}
"""By opcode of a copy or an addition, the opcode of the addition of the same rows."""

_PROPAGATE, _OF_PROPAGATE = c.columns(c.Propagate), ("component", "input", "output")


class TermsOfSums:
    """Matrices that were added to a sum that is kept, as are its other terms."""

    def __init__(self, kept: Kept) -> None:
        self._kept, self._draft, self._uses = kept, kept.draft, kept.uses
        reads = kept.reads_by(_TERMS)
        may_be_rounded = ~is_looked_at_closely(kept.draft)[kept.uses.matrix[reads]]
        self._added = self._additions(reads[may_be_rounded])
        totals = {total for added in self._added.values() for _, total in added}
        self._sums = self._writes_to(np.array(sorted(totals), dtype=np.int64))

    def _additions(self, reads: Ids) -> dict[int, list[tuple[int, int]]]:
        """By matrix the commands that add or copy all of it to another, and that other matrix."""
        matrix, command = self._uses.matrix[reads], self._uses.command[reads]
        layout, rows = self._draft.layout, self._draft.table[command]
        fits = layout.is_whole[rows[:, OUTPUT]] & layout.is_whole[rows[:, INPUT]]
        total = layout.matrix_of[rows[:, OUTPUT]]
        fits &= total != matrix
        values = zip(command[fits].tolist(), total[fits].tolist(), strict=True)
        return by_key(matrix[fits], values)

    def _writes_to(self, matrices: Ids) -> dict[int, list[tuple[int, bool, list[int]]]]:
        """By matrix the commands that write to it, whether they write all of it, and their rows."""
        uses = self._uses
        at = uses.of_matrices(matrices)
        at = at[uses.writes[at]]
        command = uses.command[at]
        is_whole = self._draft.layout.is_whole[uses.submatrix[at]].tolist()
        rows = self._draft.table.take(command, axis=0).tolist()
        return by_key(uses.matrix[at], zip(command.tolist(), is_whole, rows, strict=True))

    def find(self, matrix: int) -> Recipe | None:
        """Returns the recipe for a matrix; None if there is none."""
        for command, total in self._added.get(matrix, ()):
            found = self._without_other_terms(matrix, command, total)
            if found is not None:
                return self._kept.recipe(matrix, *found)
        return None

    def _without_other_terms(
        self, matrix: int, own: int, total: int
    ) -> tuple[c.Table, set[int]] | None:
        uses, whole_submatrix = self._uses, self._draft.layout.whole_submatrix
        first_backward = self._kept.first_backward(matrix)
        whole = int(whole_submatrix[matrix])
        steps = [copy_of(whole, int(whole_submatrix[total]))]
        sources = {total}
        for number, (command, writes_all, row) in enumerate(self._sums[total]):
            if command >= first_backward:
                break
            sets = row[c.OPCODE_COLUMN] in (c.MatrixCopy.OPCODE, c.CopyRows.OPCODE)
            if not writes_all or (sets and number):
                return None
            if command == own or self._is_identity(row):
                continue
            if row[c.OPCODE_COLUMN] not in _ADDITIONS:
                return None
            alpha = c.alpha_value(row[c.ALPHA_COLUMN])
            if abs(alpha) > 1.0 or not uses.is_unchanged(row[INPUT], command, first_backward):
                return None
            step = row.copy()
            step[c.OPCODE_COLUMN] = _ADDITIONS[row[c.OPCODE_COLUMN]]
            step[c.ALPHA_COLUMN], step[OUTPUT] = c.alpha_bits(-alpha), whole
            steps.append(step)
            sources.add(uses.matrix_of(row[INPUT]))
        return None if matrix in sources else (np.array(steps, np.int32), sources)

    def _is_identity(self, row: list[int]) -> bool:
        """Whether a command runs a NoOp in place."""
        if row[c.OPCODE_COLUMN] != c.Propagate.OPCODE:
            return False
        component, given, output = (row[_PROPAGATE[name]] for name in _OF_PROPAGATE)
        is_noop = self._draft.nnet.components[component].type == "NoOpComponent"
        return is_noop and self._uses.rectangle(given) == self._uses.rectangle(output)


def is_looked_at_closely(draft: Draft) -> Bools:
    """Which matrices, (matrices,), are read by backward passes that need exact values."""
    at = draft.positions(c.Backprop.OPCODE, c.BackpropNoModelUpdate.OPCODE)
    at = at[_need_exact_values(draft.nnet)[c.operand(draft.table, at, c.Backprop, "component")]]
    found = np.zeros(len(draft.matrices), dtype=np.bool_)
    for value in ("input_value", "output_value"):
        found[draft.layout.matrix_of[c.operand(draft.table, at, c.Backprop, value)]] = True
    return found


@remembered
def _need_exact_values(nnet: Nnet) -> Bools:
    """Which components, (components,), need exact values in their backward pass."""
    return np.array([each.BACKPROP_NEEDS_EXACT_VALUES for each in nnet.components], dtype=np.bool_)
