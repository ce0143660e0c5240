"""How the content of a matrix can be had again, at little cost, from others that are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import attrs
import numpy as np
from nnet3_compiler.commands import (
    AddRows,
    CopyRows,
    CopyRowsMulti,
    MatrixAdd,
    MatrixCopy,
    Propagate,
    SetConst,
)
from nnet3_compiler.declaration import (
    ALPHA_COLUMN,
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    TABLE_WIDTH,
    alpha_bits,
    alpha_value,
)
from nnet3_optimizer.analysis.csr import Bools, Ids, where
from nnet3_optimizer.analysis.kinds import CommandKinds
from nnet3_optimizer.analysis.uses import Reads
from nnet3_optimizer.analysis.variables import (
    COL_OFFSET,
    MATRIX,
    NUM_COLS,
    NUM_ROWS,
    ROW_OFFSET,
    Table,
)
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.operands import columns
from nnet3_optimizer.passes.recomputation.row_mappings import (
    NO_ROW,
    Rows,
    as_array,
    count_up,
    inverted,
    members,
)
from nnet3_optimizer.passes.recomputation.sensitive import is_looked_at_closely
from nnet3_optimizer.program import Program

_COPIES = CommandKinds.of(MatrixCopy, CopyRows, CopyRowsMulti, SetConst)
_FROM_ONE_MATRIX = CommandKinds.of(MatrixCopy, CopyRows)
_TERMS = CommandKinds.of(MatrixCopy, MatrixAdd)
_ADDITIONS = {
    MatrixCopy.OPCODE: MatrixAdd.OPCODE,
    MatrixAdd.OPCODE: MatrixAdd.OPCODE,
    CopyRows.OPCODE: AddRows.OPCODE,
    AddRows.OPCODE: AddRows.OPCODE,
}
"""What adds the term that a command contributes to a sum."""

_OUTPUT, _INPUT, _INDEXES = range(FIRST_OPERAND_COLUMN, FIRST_OPERAND_COLUMN + 3)
_ONE = alpha_bits(1.0)
_PROPAGATE, _OF_PROPAGATE = columns(Propagate), ("component", "input", "output")
NOTHING = 0


_Value = TypeVar("_Value")


@attrs.frozen(kw_only=True, eq=False)
class Recipe:
    """Commands that give a matrix its content again before the backward part looks at it.

    Attributes:
        matrix: The matrix.
        last_forward, first_backward: The last command of the forward part and the first of the
            backward part that use it; between the two its memory is free.
        steps: (N, TABLE_WIDTH) the commands that write all that is looked at later.
        sources: The matrices that they read, other than the matrix itself.
        part: The submatrix that is kept in a matrix of its own, from which the rest is copied; 0 if
            nothing is. The steps name it where they read it.
    """

    matrix: int
    last_forward: int
    first_backward: int
    steps: Table
    sources: tuple[int, ...]
    part: int = NOTHING


class _Copies(NamedTuple):
    """The commands that write to a matrix, at least one of them a copy.

    Attributes:
        command: (N,) the commands.
        submatrix: (N,) what they write to.
        is_copy: (N,) bool, whether they are copies.
        reads: What the copies read.
        sources: The matrices of that.
        is_changed: Whether anything writes to one of these matrices later.
    """

    command: Ids
    submatrix: Ids
    is_copy: Bools
    reads: Reads
    sources: set[int]
    is_changed: bool


class RecipeBook:
    """Finds recipes.

    Lists of rows and submatrices that recipes need are added to the edit; `renumber` drops those
    that stay without use.
    """

    def __init__(
        self, program: Program, marker: int, edit: Edit, candidates: Ids, as_bits: Ids
    ) -> None:
        """Looks at all candidates at once for what may serve to make them again.

        Args:
            program: The program.
            marker: The command between the two parts.
            edit: Gets what recipes need.
            candidates: Matrices that both parts use.
            as_bits: Matrices that will not be kept as they are, but as bits.
        """
        self.program = program
        self._as_bits = frozenset(as_bits.tolist())
        self.edit = edit
        self.uses = uses = program.analysis.uses
        read_only = candidates[uses.last_write[candidates] < marker]
        before, after = uses.around(read_only, marker)
        self._gap = dict(
            zip(read_only.tolist(), zip(before.tolist(), after.tolist(), strict=True), strict=True)
        )
        at = uses.of_matrices(read_only)
        at = at[uses.command[at] < marker]
        self._made = self._written_by_copies(at[uses.writes[at]])
        rows = program.table[uses.command[at]]
        # With scale 1, and not before the last write.
        reads = at[
            ~uses.writes[at]
            & (rows[:, ALPHA_COLUMN] == _ONE)
            & (uses.command[at] >= uses.last_write[uses.matrix[at]])
        ]
        kinds = program.opcodes[uses.command[reads]]
        self._copied = self._copies(reads[_FROM_ONE_MATRIX.among(kinds)])
        may_be_rounded = ~is_looked_at_closely(program)[uses.matrix[reads]]
        self._added = self._additions(reads[_TERMS.among(kinds) & may_be_rounded])
        totals = {total for added in self._added.values() for _, total in added}
        self._sums = self._writes_to(np.array(sorted(totals), dtype=np.int64))

    def _written_by_copies(self, writes: Ids) -> dict[int, _Copies]:
        """By matrix what writes to it, where that are copies, and nothing else as a whole."""
        uses = self.uses
        is_copy = _COPIES.among(self.program.opcodes.take(uses.command.take(writes)))
        otherwise = ~is_copy & self.program.layout.is_whole.take(uses.submatrix.take(writes))
        fits = np.zeros(len(self.program.matrices), dtype=np.bool_)
        fits[uses.matrix.take(writes[is_copy])] = True
        fits[uses.matrix.take(writes[otherwise])] = False
        chosen = fits.take(uses.matrix.take(writes))
        writes, is_copy = writes[chosen], is_copy[chosen]
        matrix, command = uses.matrix.take(writes), uses.command.take(writes)
        submatrix = uses.submatrix.take(writes)
        # Each copy writes to one matrix.
        target = np.zeros(len(self.program.table), dtype=np.int64)
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

    def _copies(self, reads: Ids) -> dict[int, list[int]]:
        """By matrix the commands that copy some of its rows, whole ones, to other matrices."""
        matrix, command = self.uses.matrix[reads], self.uses.command[reads]
        given, output = self._operands(command)
        num_rows, num_cols = self.program.matrices.T
        fits = (given[:, NUM_COLS] == num_cols[matrix]) & (output[:, MATRIX] != matrix)
        copied = np.bincount(matrix, output[:, NUM_ROWS] * fits, minlength=len(num_rows))
        fits &= copied[matrix] >= num_rows[matrix]
        return _by_key(matrix[fits], command[fits].tolist())

    def _additions(self, reads: Ids) -> dict[int, list[tuple[int, int]]]:
        """By matrix the commands that add or copy all of it to another, and that other matrix."""
        matrix, command = self.uses.matrix[reads], self.uses.command[reads]
        layout, rows = self.program.layout, self.program.table[command]
        fits = layout.is_whole[rows[:, _OUTPUT]] & layout.is_whole[rows[:, _INPUT]]
        total = layout.matrix_of[rows[:, _OUTPUT]]
        fits &= total != matrix
        values = zip(command[fits].tolist(), total[fits].tolist(), strict=True)
        return _by_key(matrix[fits], values)

    def _writes_to(self, matrices: Ids) -> dict[int, list[tuple[int, bool, list[int]]]]:
        """By matrix the commands that write to it, whether to all of it, and their rows."""
        uses = self.uses
        at = uses.of_matrices(matrices)
        at = at[uses.writes[at]]
        command = uses.command[at]
        is_whole = self.program.layout.is_whole[uses.submatrix[at]].tolist()
        rows = self.program.table.take(command, axis=0).tolist()
        return _by_key(uses.matrix[at], zip(command.tolist(), is_whole, rows, strict=True))

    def _operands(self, commands: Ids | list[int]) -> tuple[Table, Table]:
        """The submatrices that copies read and write, (N, 5) each."""
        rows = self.program.table[commands]
        return self.program.submatrices[rows[:, _INPUT]], self.program.submatrices[rows[:, _OUTPUT]]

    def recipes(self, matrix: int) -> Iterator[Recipe]:
        """Returns the recipes for a matrix, the most exact first."""
        for may_serve, find in (
            (self._made, self._made_of_copies),
            (self._copied, self._copied_elsewhere),
            (self._added, self._term_of_a_sum),
        ):
            found = find(matrix) if matrix in may_serve else None
            if found is not None and self._as_bits.isdisjoint(found.sources):
                yield found

    def _recipe(self, matrix: int, steps: Table, sources: set[int], part: int = NOTHING) -> Recipe:
        last_forward, first_backward = self._gap[matrix]
        return Recipe(
            matrix=matrix,
            last_forward=last_forward,
            first_backward=first_backward,
            steps=steps,
            sources=tuple(sorted(sources)),
            part=part,
        )

    # -- the same copies once more -------------------------------------------------------------

    def _made_of_copies(self, matrix: int) -> Recipe | None:
        """All of the matrix was copied from elsewhere, or from one part of itself."""
        made, part = self._made[matrix], NOTHING
        commands = made.command
        if not made.is_copy.all():
            others = ~made.is_copy
            if commands[others][-1] >= commands[made.is_copy][0]:
                return None
            found = self._common_part(made.submatrix[others], made.submatrix[made.is_copy])
            if found is None:
                return None
            part, commands = found, commands[made.is_copy]
        if made.is_changed and not self.uses.stay(made.reads, self._gap[matrix][1]):
            return None
        if matrix in made.sources:
            own = where(made.reads.matrix == matrix)
            if not part or not self._are_read_from(part, made.reads, own):
                return None
        steps = self.program.table.take(commands, axis=0)
        return self._recipe(matrix, steps, made.sources - {matrix}, part)

    def _are_read_from(self, part: int, reads: Reads, own: Ids) -> bool:
        """Whether some reads are from this part, and not through lists."""
        parts = self.uses.parts
        through_list = self.program.opcodes[reads.command[own]] == CopyRowsMulti.OPCODE
        return not through_list.any() and all(
            parts[part].contains(parts[each]) for each in set(reads.submatrix[own].tolist())
        )

    def _common_part(self, others: Ids, copied: Ids) -> int | None:
        """The submatrix that all but the copies write to; None if it won't do."""
        part = int(others[0])
        parts = self.uses.parts
        if not all(parts[part].contains(parts[each]) for each in set(others.tolist())):
            return None
        own, beside = parts[part], self.program.submatrices[copied]
        is_beside = (beside[:, COL_OFFSET] >= own.col + own.cols) | (
            beside[:, COL_OFFSET] + beside[:, NUM_COLS] <= own.col
        )
        return part if is_beside.all() else None

    # -- a copy the other way round ------------------------------------------------------------

    def _copied_elsewhere(self, matrix: int) -> Recipe | None:
        """All rows of the matrix were copied to one other matrix."""
        commands = np.array(self._copied[matrix])
        given, output = self._operands(commands)
        num_rows = int(self.program.matrices[matrix, 0])
        _, first_backward = self._gap[matrix]
        places = output[:, [MATRIX, COL_OFFSET]].tolist()
        for source, column in dict.fromkeys(map(tuple, places)):
            there = (output[:, MATRIX] == source) & (output[:, COL_OFFSET] == column)
            counts = output[there, NUM_ROWS].astype(np.int64)
            if counts.sum() < num_rows:
                continue
            lost = self.uses.rows_written_to(output[there], commands[there], first_backward)
            if lost is not None and counts.sum() - lost.sum() < num_rows:
                continue
            from_rows = self._rows_copied(commands[there], given[there], counts)
            if lost is not None:
                from_rows = np.where(lost, NO_ROW, as_array(from_rows))
            there_rows = members(output[there, ROW_OFFSET], counts)
            rows = inverted(from_rows, there_rows, num_rows)
            if rows is not None:
                step = self._gather(matrix, source, column, rows)
                return self._recipe(matrix, np.array([step], np.int32), {source})
        return None

    def _rows_copied(self, commands: Ids, given: Table, counts: Ids) -> Rows:
        """Which rows of a matrix commands copy, or NO_ROW, one command after the other.

        Args:
            commands: (N,) the commands.
            given: (N, 5) what they copy from.
            counts: (N,) how many rows they copy.
        """
        table = self.program.table[commands]
        if (table[:, OPCODE_COLUMN] == MatrixCopy.OPCODE).all():
            return members(given[:, ROW_OFFSET], counts)
        rows = []
        for row, first, count in zip(
            table.tolist(), given[:, ROW_OFFSET].tolist(), counts.tolist(), strict=True
        ):
            if row[OPCODE_COLUMN] == CopyRows.OPCODE:
                indexes = self.program.indexes[row[_INDEXES]]
                rows.append(np.where(indexes < 0, NO_ROW, indexes + first) if first else indexes)
            else:
                rows.append(np.arange(first, first + count, dtype=np.int32))
        return np.concatenate(rows)

    def _gather(self, matrix: int, source: int, column: int, rows: Rows) -> list[int]:
        """The command that copies these rows of a matrix, from a column on, to another matrix."""
        cols = int(self.program.matrices[matrix, 1])
        whole = int(self.program.layout.whole_submatrix[matrix])
        given = [source, int(rows[0]), len(rows), column, cols]
        if isinstance(rows, range) or count_up(rows):
            return _copy_of(whole, int(self.edit.submatrices(np.array([given]))[0]))
        given[ROW_OFFSET], given[NUM_ROWS] = 0, int(self.program.matrices[source, 0])
        row = _copy_of(whole, int(self.edit.submatrices(np.array([given]))[0]))
        row[OPCODE_COLUMN], row[_INDEXES] = CopyRows.OPCODE, self.edit.indexes(rows)
        return row

    # -- a sum without its other terms ---------------------------------------------------------

    def _term_of_a_sum(self, matrix: int) -> Recipe | None:
        """The matrix was added to others, and the sum and the others are kept."""
        for command, total in self._added[matrix]:
            found = self._without_other_terms(matrix, command, total)
            if found is not None:
                return self._recipe(matrix, *found)
        return None

    def _without_other_terms(
        self, matrix: int, own: int, total: int
    ) -> tuple[Table, set[int]] | None:
        uses, whole_submatrix = self.uses, self.program.layout.whole_submatrix
        _, first_backward = self._gap[matrix]
        whole = int(whole_submatrix[matrix])
        steps = [_copy_of(whole, int(whole_submatrix[total]))]
        sources = {total}
        for number, (command, writes_all, row) in enumerate(self._sums[total]):
            if command >= first_backward:
                break
            sets = row[OPCODE_COLUMN] in (MatrixCopy.OPCODE, CopyRows.OPCODE)
            if not writes_all or (sets and number):
                return None
            if command == own or self._is_identity(row):
                continue
            if row[OPCODE_COLUMN] not in _ADDITIONS:
                return None
            alpha = alpha_value(row[ALPHA_COLUMN])
            if abs(alpha) > 1.0 or not uses.is_unchanged(row[_INPUT], command, first_backward):
                return None
            step = row.copy()
            step[OPCODE_COLUMN] = _ADDITIONS[row[OPCODE_COLUMN]]
            step[ALPHA_COLUMN], step[_OUTPUT] = alpha_bits(-alpha), whole
            steps.append(step)
            sources.add(uses.parts[row[_INPUT]].matrix)
        return None if matrix in sources else (np.array(steps, np.int32), sources)

    def _is_identity(self, row: list[int]) -> bool:
        """Whether a command runs a NoOp in place."""
        if row[OPCODE_COLUMN] != Propagate.OPCODE:
            return False
        component, given, output = (row[_PROPAGATE[name]] for name in _OF_PROPAGATE)
        is_noop = self.program.nnet.components[component].type == "NoOpComponent"
        return is_noop and self.uses.parts[given] == self.uses.parts[output]


def _by_key(keys: Ids, values: Iterable[_Value]) -> dict[int, list[_Value]]:
    found: dict[int, list[_Value]] = {}
    for key, value in zip(keys.tolist(), values, strict=True):
        found.setdefault(key, []).append(value)
    return found


def _copy_of(output: int, given: int) -> list[int]:
    """The row of the command that copies one submatrix to another."""
    row = [0] * TABLE_WIDTH
    row[OPCODE_COLUMN], row[ALPHA_COLUMN] = MatrixCopy.OPCODE, _ONE
    row[_OUTPUT], row[_INPUT] = output, given
    return row
