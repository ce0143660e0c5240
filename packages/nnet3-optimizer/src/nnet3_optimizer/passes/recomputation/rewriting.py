"""Puts recipes into a program: the matrix is freed, and another one takes its place later."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_compiler.commands import (
    SCHEMA,
    AllocMatrixUndefined,
    DeallocMatrix,
    MatrixCopy,
)
from nnet3_compiler.debug_info import NO_DEBUG_INFO
from nnet3_compiler.declaration import OPCODE_COLUMN, OperandKind
from nnet3_optimizer.analysis.csr import Ids, where
from nnet3_optimizer.analysis.variables import (
    COL_OFFSET,
    MATRIX,
    NUM_COLS,
    NUM_ROWS,
    ROW_OFFSET,
    Table,
)
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.passes.recomputation.recipes import Recipe
from nnet3_optimizer.passes.uses import Uses
from nnet3_optimizer.program import Program


@attrs.frozen(kw_only=True)
class _Replacement:
    """What stands for a matrix from now on.

    Attributes:
        recipe: The recipe.
        later: The submatrix that covers the matrix which the backward part uses.
        kept: The submatrix that covers the matrix of the part that is kept; 0 for none.
        later_matrix: The matrix which the backward part uses.
    """

    recipe: Recipe
    later: int
    kept: int
    later_matrix: int


class Rewriting:
    """Follows recipes in an edit of a program."""

    def __init__(self, program: Program, edit: Edit, uses: Uses) -> None:
        """Prepares a rewriting.

        Args:
            program: The program.
            edit: Collects the changes.
            uses: The accesses of the program.
        """
        self.program = program
        self.edit = edit
        self._uses = uses
        num_matrices = len(program.matrices)
        # By matrix: what stands for it, from which command on, and for which part of it.
        self._later, self._kept = np.zeros((2, num_matrices), dtype=np.int64)
        self._first_backward = np.full(num_matrices, len(program.table), dtype=np.int64)
        self._part = np.zeros((num_matrices, 5), dtype=np.int64)

    def follow(self, recipes: list[Recipe], ends: dict[int, int]) -> None:
        """Changes the commands.

        Args:
            recipes: The recipes.
            ends: The commands up to which sources have to be kept, where that is longer than now.
        """
        replacements = [self._replacement(recipe) for recipe in recipes]
        self._rename()
        counts = [len(recipe.steps) for recipe in recipes]
        steps = self._renamed_steps(recipes, counts)
        for replacement, own in zip(
            replacements, np.split(steps, np.cumsum(counts)[:-1]), strict=True
        ):
            self._insert(replacement, own)
        self._rename_in_lists()
        end = np.array(list(ends.values()), dtype=np.int64)
        freed = self.program.analysis.lifetimes.deallocate[list(ends)]
        early = (freed >= 0) & (freed < end)
        self.edit.insert(end[early], self.program.table[freed[early]])
        self.edit.delete(freed[early])

    def _replacement(self, recipe: Recipe) -> _Replacement:
        program = self.program
        rows, cols = program.matrices[recipe.matrix].tolist()
        info = program.debug_info[recipe.matrix] if program.debug_info else None
        later = self.edit.matrix(rows, cols, info)
        kept = 0
        if recipe.part:
            part = program.submatrices[recipe.part]
            kept = self.edit.matrix(int(part[NUM_ROWS]), int(part[NUM_COLS]), NO_DEBUG_INFO)
            self._part[recipe.matrix] = part
            self._kept[recipe.matrix] = self.edit.submatrix(kept)[0]
        later_matrix = self.edit.submatrix(later)[0]
        self._later[recipe.matrix] = later_matrix
        self._first_backward[recipe.matrix] = recipe.first_backward
        return _Replacement(recipe=recipe, later=later, kept=kept, later_matrix=later_matrix)

    # -- names ---------------------------------------------------------------------------------

    def _rename(self) -> None:
        """Lets commands name what stands for matrices now."""
        program = self.program
        named = SCHEMA.is_matrix[program.opcodes] & (program.table > 0)
        command, column = named.nonzero()
        matrix = program.submatrices[program.table[command, column], MATRIX]
        replaced = where(self._later[matrix] > 0)
        command, column = command[replaced], column[replaced]
        self.edit.table[command, column] = self._renamed(program.table[command, column], command)

    def _renamed(self, submatrices: Table | Ids, command: Ids) -> Ids:
        """Returns what commands name instead of submatrices.

        Args:
            submatrices: (N,) submatrices of the program.
            command: (N,) the commands.
        """
        own = self.program.submatrices[submatrices].astype(np.int64)
        part = self._part[own[:, MATRIX]]
        begin, size = own[:, [ROW_OFFSET, COL_OFFSET]], own[:, [NUM_ROWS, NUM_COLS]]
        part_begin, part_size = part[:, [ROW_OFFSET, COL_OFFSET]], part[:, [NUM_ROWS, NUM_COLS]]
        in_part = (part_begin <= begin) & (begin + size <= part_begin + part_size)
        is_kept = in_part.all(axis=1)
        is_later = ~is_kept & (command >= self._first_backward[own[:, MATRIX]])
        own[is_kept, ROW_OFFSET] -= part_begin[is_kept, 0]
        own[is_kept, COL_OFFSET] -= part_begin[is_kept, 1]
        matrix = own[:, MATRIX]
        own[:, MATRIX] = np.where(is_kept, self._kept[matrix], self._later[matrix])
        renamed = np.array(submatrices, dtype=np.int64)
        changed = is_kept | is_later
        # Those that are equal become one again when they are numbered in the end.
        renamed[changed] = self.edit.submatrices(own[changed])
        return renamed

    def _rename_in_lists(self) -> None:
        """Gives commands new lists of (submatrix, row) pairs where these name other matrices."""
        kinds = SCHEMA.kind[self.program.opcodes]
        for command, column in np.argwhere(kinds == OperandKind.INDEXES_MULTI).tolist():
            number = self.program.table[command, column]
            named = self.program.pair_lists.named[int(number)]
            renamed = self._renamed(named, np.full(len(named), command))
            if (renamed == named).all():
                continue
            changed = self.program.indexes_multi[number].copy()
            given = changed[:, 0] > 0
            changed[given, 0] = renamed[np.searchsorted(named, changed[given, 0])]
            self.edit.table[command, column] = self.edit.indexes_multi(changed)

    # -- new commands --------------------------------------------------------------------------

    def _renamed_steps(self, recipes: list[Recipe], counts: list[int]) -> Table:
        """Returns the steps of all recipes, one after another, with the names of now."""
        steps = np.concatenate([recipe.steps for recipe in recipes])
        at = np.repeat([recipe.first_backward for recipe in recipes], counts)
        named = SCHEMA.is_matrix[steps[:, OPCODE_COLUMN]] & (steps > 0)
        named &= steps < len(self.program.submatrices)  # others were made for the recipe
        step, column = named.nonzero()
        steps[step, column] = self._renamed(steps[step, column], at[step])
        return steps

    def _insert(self, replacement: _Replacement, steps: Table) -> None:
        """Frees the matrix after its last use before the marker, and makes it again later."""
        recipe = replacement.recipe
        allocated = self._allocation(recipe.matrix)
        whole = int(self.program.layout.whole_submatrix[recipe.matrix])
        free = DeallocMatrix(matrix=whole)
        self.edit.insert(recipe.last_forward + 1, np.array([free.row], np.int32))
        allocation = self.program.table[[allocated]].copy()
        allocation[0, 2] = replacement.later
        if recipe.part:
            self._keep_part(replacement, allocated)
            steps = np.concatenate([self._copy_of_part(replacement), steps])
        self.edit.insert(recipe.first_backward, np.concatenate([allocation, steps]))

    def _allocation(self, matrix: int) -> int:
        """The command that allocates a matrix."""
        return int(self.program.analysis.lifetimes.allocate[matrix])

    def _copy_of_part(self, replacement: _Replacement) -> Table:
        """The command that copies the part that is kept into the later matrix."""
        place = self.program.submatrices[[replacement.recipe.part]].copy()
        place[0, MATRIX] = replacement.later_matrix
        part = int(self.edit.submatrices(place)[0])
        return np.array([MatrixCopy(output=part, input=replacement.kept, alpha=1.0).row], np.int32)

    def _keep_part(self, replacement: _Replacement, allocated: int) -> None:
        """Makes the part first, in a matrix of its own; it is copied when others are needed."""
        program, part = self.program, replacement.recipe.part
        make = AllocMatrixUndefined(matrix=replacement.kept)
        free = DeallocMatrix(matrix=replacement.kept)
        copy = MatrixCopy(output=part, input=replacement.kept, alpha=1.0)
        self.edit.insert(allocated, np.array([make.row], np.int32))
        uses = self._uses
        for access in uses.of_matrix(replacement.recipe.matrix).tolist():
            if not uses.parts[part].contains(uses.parts[int(uses.submatrix[access])]):
                self.edit.insert(int(uses.command[access]), np.array([copy.row], np.int32))
                break
        self.edit.insert(len(program.table), np.array([free.row], np.int32))
