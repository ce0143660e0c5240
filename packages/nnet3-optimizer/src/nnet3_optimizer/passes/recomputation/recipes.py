"""How the content of a matrix can be had again, at little cost, from others that are kept."""

from __future__ import annotations

from collections.abc import Iterator

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
    alpha_bits,
    alpha_value,
)
from nnet3_optimizer.analysis.csr import Bools, Ids, positions_in_lists, splits_of, where
from nnet3_optimizer.analysis.kinds import CommandKinds
from nnet3_optimizer.analysis.variables import (
    COL_OFFSET,
    MATRIX,
    NUM_COLS,
    NUM_ROWS,
    ROW_OFFSET,
    Table,
)
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.passes.uses import Uses
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
NOTHING = 0


@attrs.frozen(kw_only=True, eq=False)
class Recipe:
    """Commands that give a matrix its content again before the backward part looks at it.

    Attributes:
        matrix: The matrix.
        last_forward, first_backward: The last command of the forward part and the first of the
            backward part that use it; between the two its memory is free.
        steps: (N, TABLE_WIDTH) commands that write all that is looked at later.
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


class RecipeBook:
    """Finds recipes.

    Lists of rows and submatrices that recipes need are added to the edit; `renumber` drops those
    that stay without use.
    """

    def __init__(self, program: Program, marker: int, edit: Edit, as_bits: Ids) -> None:
        """Prepares to look.

        Args:
            program: The program.
            marker: The command between the two parts.
            edit: Gets what recipes need.
            as_bits: Matrices that will not be kept as they are, but as bits.
        """
        self.program = program
        self.as_bits = frozenset(as_bits.tolist())
        self.marker = marker
        self.edit = edit
        self.uses = Uses(program)
        # Which matrices are worth a look, for each kind of recipe.
        forward = self.uses.command < marker
        rows = program.table[self.uses.command]
        kinds, writes = rows[:, OPCODE_COLUMN], self.uses.writes
        reads = forward & ~writes & (rows[:, ALPHA_COLUMN] == _ONE)
        self._is_made_of_copies = self._matrices(forward & writes & _COPIES.among(kinds))
        self._is_copied = self._matrices(reads & _FROM_ONE_MATRIX.among(kinds))
        self._is_added = self._matrices(reads & _TERMS.among(kinds))

    def _matrices(self, accesses: Bools) -> Bools:
        """Returns the matrices, (M,) bool, of some accesses, (A,) bool."""
        found = np.zeros(len(self.program.matrices), dtype=np.bool_)
        found[self.uses.matrix_of(where(accesses))] = True
        return found

    def recipes(self, matrix: int) -> Iterator[Recipe]:
        """Returns the recipes for a matrix that both parts use, the most exact first."""
        uses = self.uses
        at = uses.of_matrix(matrix)
        forward, backward = at[uses.command[at] < self.marker], at[uses.command[at] > self.marker]
        if not len(forward) or not len(backward) or uses.writes[backward].any():
            return
        first_backward = int(uses.command[backward[0]])
        for is_worth_a_look, find in (
            (self._is_made_of_copies, self._made_of_copies),
            (self._is_copied, self._copied_elsewhere),
            (self._is_added, self._term_of_a_sum),
        ):
            found = find(matrix, forward, first_backward) if is_worth_a_look[matrix] else None
            if found is not None and self.as_bits.isdisjoint(found.sources):
                yield found

    def _recipe(
        self, matrix: int, forward: Ids, first_backward: int, steps: Table, sources: set[int]
    ) -> Recipe:
        return Recipe(
            matrix=matrix,
            last_forward=int(self.uses.command[forward[-1]]),
            first_backward=first_backward,
            steps=steps,
            sources=tuple(sorted(sources)),
        )

    def _keep(self, submatrix: int, after: int, first_backward: int) -> bool:
        return self.uses.is_unchanged(submatrix, after, first_backward)

    def _matrix(self, submatrix: int) -> int:
        return self.uses.parts[submatrix].matrix

    # -- the same copies once more -------------------------------------------------------------

    def _made_of_copies(self, matrix: int, forward: Ids, first_backward: int) -> Recipe | None:
        """All of the matrix was copied from elsewhere, or from one part of itself."""
        program, uses = self.program, self.uses
        writers = forward[uses.writes[forward]]
        copies = _COPIES.among(program.opcodes[uses.command[writers]])
        if not copies.any():
            return None
        part = self._common_part(matrix, writers[~copies], writers[copies])
        if part is None:
            return None
        commands = uses.command[writers[copies]]
        reads = uses.reads_of(commands)
        if not self._stay(reads, first_backward):
            return None
        sources = uses.matrix_of(reads)
        for read in reads[sources == matrix].tolist():
            if (
                not part
                or not uses.parts[part].contains(uses.parts[int(uses.submatrix[read])])
                or program.opcodes[uses.command[read]] == CopyRowsMulti.OPCODE
            ):
                return None
        others = set(sources[sources != matrix].tolist())
        steps = program.table[commands]
        recipe = self._recipe(matrix, forward, first_backward, steps, others)
        return attrs.evolve(recipe, part=part)

    def _stay(self, reads: Ids, first_backward: int) -> bool:
        """Whether all that was read is still there when the backward part begins."""
        changed = reads[self.uses.may_be_changed(reads)]
        return all(
            self._keep(int(self.uses.submatrix[read]), int(self.uses.command[read]), first_backward)
            for read in changed.tolist()
        )

    def _common_part(self, matrix: int, others: Ids, copies: Ids) -> int | None:
        """The submatrix that all but the copies write to; 0 without any, None if it won't do."""
        if not len(others):
            return NOTHING
        part = int(self.uses.submatrix[others[0]])
        parts = self.uses.parts
        written = np.unique(self.uses.submatrix[others]).tolist()
        if not all(parts[part].contains(parts[submatrix]) for submatrix in written):
            return None
        last = int(self.uses.command[others[-1]])
        first = int(self.uses.command[copies[0]])
        copied = self.program.submatrices[self.uses.submatrix[copies]]
        own = self.program.submatrices[part]
        beside = (copied[:, COL_OFFSET] >= own[COL_OFFSET] + own[NUM_COLS]) | (
            copied[:, COL_OFFSET] + copied[:, NUM_COLS] <= own[COL_OFFSET]
        )
        return part if last < first and beside.all() else None

    # -- a copy the other way round ------------------------------------------------------------

    def _copied_elsewhere(self, matrix: int, forward: Ids, first_backward: int) -> Recipe | None:
        """All rows of the matrix were copied to one other matrix."""
        commands = self._readers(forward, _FROM_ONE_MATRIX)
        given, output = (
            self.program.submatrices[self.program.table[commands, column]]
            for column in (_INPUT, _OUTPUT)
        )
        num_rows, num_cols = self.program.matrices[matrix].tolist()
        whole_rows = (given[:, NUM_COLS] == num_cols) & (output[:, MATRIX] != matrix)
        places = output[whole_rows][:, [MATRIX, COL_OFFSET]].tolist()
        for source, column in dict.fromkeys(map(tuple, places)):
            there = whole_rows & (output[:, MATRIX] == source) & (output[:, COL_OFFSET] == column)
            if output[there, NUM_ROWS].sum() < num_rows:
                continue
            from_rows, to_rows, by = self._rows_of_copies(commands[there])
            last_writes = self.uses.last_writes_to(source, column, num_cols, first_backward)
            stays = (from_rows >= 0) & (last_writes[to_rows] <= by)
            rows = np.full(num_rows, -1)
            rows[from_rows[stays]] = to_rows[stays]
            if (rows >= 0).all():
                step = self._gather(matrix, source, column, rows)
                return self._recipe(matrix, forward, first_backward, step, {source})
        return None

    def _rows_of_copies(self, commands: Ids) -> tuple[Ids, Ids, Ids]:
        """From which row (-1 for none) to which row, and by which command, copies go."""
        table = self.program.table[commands]
        given, output = (self.program.submatrices[table[:, at]] for at in (_INPUT, _OUTPUT))
        counts = output[:, NUM_ROWS].astype(np.int64)
        position = positions_in_lists(counts)
        from_rows = np.repeat(given[:, ROW_OFFSET], counts) + position
        splits = splits_of(counts)
        for at in where(table[:, OPCODE_COLUMN] == CopyRows.OPCODE).tolist():
            indexes = self.program.indexes[table[at, _INDEXES]]
            rows = np.where(indexes >= 0, given[at, ROW_OFFSET] + indexes, -1)
            from_rows[splits[at] : splits[at + 1]] = rows
        to_rows = np.repeat(output[:, ROW_OFFSET], counts) + position
        return from_rows, to_rows, np.repeat(commands, counts)

    def _readers(self, forward: Ids, kinds: CommandKinds) -> Ids:
        """The commands of some kinds, with scale 1, that read a matrix after the last write."""
        writes = self.uses.writes[forward]
        commands = self.uses.command[forward]
        rows = self.program.table[commands]
        reads = ~writes & kinds.among(rows[:, OPCODE_COLUMN]) & (rows[:, ALPHA_COLUMN] == _ONE)
        reads &= commands >= commands[writes].max(initial=-1)
        readers: Ids = commands[reads]
        return readers

    def _gather(self, matrix: int, source: int, column: int, rows: Ids) -> Table:
        """The command that copies these rows of a matrix, from a column on, to another matrix."""
        cols = int(self.program.matrices[matrix, 1])
        first, count = int(rows[0]), len(rows)
        in_order = bool((rows == np.arange(first, first + count)).all())
        if not in_order:
            first, count = 0, int(self.program.matrices[source, 0])
        given = int(self.edit.submatrices(np.array([[source, first, count, column, cols]]))[0])
        whole = int(self.program.layout.whole_submatrix[matrix])
        if in_order:
            return np.array([MatrixCopy(output=whole, input=given, alpha=1.0).row], np.int32)
        indexes = self.edit.indexes(rows.astype(np.int32))
        return np.array(
            [CopyRows(output=whole, input=given, indexes=indexes, alpha=1.0).row], np.int32
        )

    # -- a sum without its other terms ---------------------------------------------------------

    def _term_of_a_sum(self, matrix: int, forward: Ids, first_backward: int) -> Recipe | None:
        """The matrix was added to others, and the sum and the others are kept."""
        commands = self._readers(forward, _TERMS)
        output, given = (self.program.table[commands, column] for column in (_OUTPUT, _INPUT))
        totals = self.program.submatrices[output, MATRIX]
        is_whole = self.program.layout.is_whole
        fits = is_whole[output] & is_whole[given] & (totals != matrix)
        for command, total in zip(commands[fits].tolist(), totals[fits].tolist(), strict=True):
            found = self._without_other_terms(matrix, total, command, first_backward)
            if found is not None:
                return self._recipe(matrix, forward, first_backward, *found)
        return None

    def _without_other_terms(
        self, matrix: int, total: int, own: int, first_backward: int
    ) -> tuple[Table, set[int]] | None:
        uses, program = self.uses, self.program
        at = uses.of_matrix(total)
        at = at[uses.writes[at] & (uses.command[at] < first_backward)]
        whole = int(program.layout.whole_submatrix[matrix])
        sum_of_all = int(program.layout.whole_submatrix[total])
        steps = [MatrixCopy(output=whole, input=sum_of_all, alpha=1.0).row]
        sources = {total}
        for number, command in enumerate(uses.command[at].tolist()):
            row = program.table[command].tolist()
            if not program.layout.is_whole[uses.submatrix[at[number]]]:
                return None
            sets = row[OPCODE_COLUMN] in (MatrixCopy.OPCODE, CopyRows.OPCODE)
            if sets and number:
                return None
            if command == own or self._is_identity(row):
                continue
            if row[OPCODE_COLUMN] not in _ADDITIONS:
                return None
            alpha = alpha_value(row[ALPHA_COLUMN])
            if abs(alpha) > 1.0 or not self._keep(row[_INPUT], command, first_backward):
                return None
            row[OPCODE_COLUMN] = _ADDITIONS[row[OPCODE_COLUMN]]
            row[ALPHA_COLUMN], row[_OUTPUT] = alpha_bits(-alpha), whole
            steps.append(tuple(row))
            sources.add(self._matrix(row[_INPUT]))
        if matrix in sources:
            return None
        return np.array(steps, np.int32), sources

    def _is_identity(self, row: list[int]) -> bool:
        """Whether a command runs a NoOp in place."""
        if row[OPCODE_COLUMN] != Propagate.OPCODE:
            return False
        command = Propagate.from_row(row)
        is_noop = self.program.nnet.components[command.component].type == "NoOpComponent"
        return is_noop and self.uses.parts[command.input] == self.uses.parts[command.output]
