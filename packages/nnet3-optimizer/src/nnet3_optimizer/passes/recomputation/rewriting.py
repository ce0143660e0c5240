"""Puts recipes into a program: the matrix is freed, and another one takes its place later."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_compiler.commands import (
    SCHEMA,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    DeallocMatrix,
    MatrixCopy,
)
from nnet3_compiler.debug_info import NO_DEBUG_INFO
from nnet3_compiler.declaration import OPCODE_COLUMN, OperandKind
from nnet3_optimizer.analysis.variables import MATRIX, Table
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.passes.recomputation.recipes import Recipe
from nnet3_optimizer.passes.uses import Parts
from nnet3_optimizer.program import Program


@attrs.frozen(kw_only=True)
class _Replacement:
    """What stands for a matrix from now on.

    Attributes:
        recipe: The recipe.
        later: The submatrix that covers the matrix which the backward part uses.
        kept: The submatrix that covers the matrix of the part that is kept; 0 for none.
        later_matrix, kept_matrix: These matrices.
    """

    recipe: Recipe
    later: int
    kept: int
    later_matrix: int
    kept_matrix: int


class Rewriting:
    """Follows recipes in an edit of a program."""

    def __init__(self, program: Program, edit: Edit, parts: Parts) -> None:
        """Prepares a rewriting.

        Args:
            program: The program.
            edit: Collects the changes.
            parts: The submatrices of the program.
        """
        self.program = program
        self.edit = edit
        self._parts = parts
        self._replacements: dict[int, _Replacement] = {}
        self._named: dict[int, list[tuple[int, int]]] = {}
        self._new: dict[tuple[int, int], int] = {}

    def follow(self, recipes: list[Recipe], ends: dict[int, int]) -> None:
        """Changes the commands.

        Args:
            recipes: The recipes.
            ends: The commands up to which sources have to be kept, where that is longer than now.
        """
        for recipe in recipes:
            self._replacements[recipe.matrix] = self._replacement(recipe)
        self._find_names()
        for recipe in recipes:
            self._rename(recipe)
            self._insert(self._replacements[recipe.matrix])
        self._rename_in_lists()
        lifetimes = self.program.analysis.lifetimes
        for source, end in ends.items():
            freed = int(lifetimes.deallocate[source])
            if 0 <= freed < end:
                self.edit.insert(end, self.program.table[[freed]])
                self.edit.delete(freed)

    def _replacement(self, recipe: Recipe) -> _Replacement:
        program = self.program
        rows, cols = program.matrices[recipe.matrix].tolist()
        info = program.debug_info[recipe.matrix] if program.debug_info else None
        later = self.edit.matrix(rows, cols, info)
        kept = 0
        if recipe.part:
            _, _, rows, _, cols = program.submatrices[recipe.part].tolist()
            kept = self.edit.matrix(rows, cols, NO_DEBUG_INFO)
        return _Replacement(
            recipe=recipe,
            later=later,
            kept=kept,
            later_matrix=self.edit.submatrix(later)[0],
            kept_matrix=self.edit.submatrix(kept)[0],
        )

    # -- names ---------------------------------------------------------------------------------

    def _find_names(self) -> None:
        """Finds the commands and columns that name each matrix that is replaced."""
        program = self.program
        replaced = np.zeros(len(program.matrices), dtype=np.bool_)
        replaced[list(self._replacements)] = True
        is_matrix = SCHEMA.is_matrix[program.opcodes]
        matrix = program.submatrices[np.where(is_matrix, program.table, 0), MATRIX]
        for command, column in np.argwhere(replaced[matrix]).tolist():
            named = self._named.setdefault(int(matrix[command, column]), [])
            named.append((command, column))

    def _rename(self, recipe: Recipe) -> None:
        """Lets commands name what stands for the matrix now."""
        for command, column in self._named[recipe.matrix]:
            submatrix = int(self.program.table[command, column])
            self.edit.table[command, column] = self._renamed(submatrix, command)

    def _renamed(self, submatrix: int, command: int) -> int:
        """Returns what a command names instead of a submatrix."""
        own = self._parts[submatrix]
        replacement = self._replacements.get(own.matrix)
        if replacement is None:
            return submatrix
        recipe = replacement.recipe
        if recipe.part and self._parts[recipe.part].contains(own):
            part = self._parts[recipe.part]
            matrix = replacement.kept_matrix
            own = own._replace(row=own.row - part.row, col=own.col - part.col)
        elif command >= recipe.first_backward:
            matrix = replacement.later_matrix
        else:
            return submatrix
        key = matrix, submatrix
        if key not in self._new:
            place = np.array([own._replace(matrix=matrix)])
            self._new[key] = int(self.edit.submatrices(place)[0])
        return self._new[key]

    def _rename_in_lists(self) -> None:
        """Gives commands new lists of (submatrix, row) pairs where these name other matrices."""
        kinds = SCHEMA.kind[self.program.opcodes]
        for command, column in np.argwhere(kinds == OperandKind.INDEXES_MULTI).tolist():
            pairs = self.program.indexes_multi[self.program.table[command, column]]
            named = np.unique(pairs[pairs[:, 0] > 0, 0]).tolist()
            new = {each: self._renamed(each, command) for each in named}
            if all(old == renamed for old, renamed in new.items()):
                continue
            changed = pairs.copy()
            for old, renamed in new.items():
                changed[pairs[:, 0] == old, 0] = renamed
            self.edit.table[command, column] = self.edit.indexes_multi(changed)

    # -- new commands --------------------------------------------------------------------------

    def _insert(self, replacement: _Replacement) -> None:
        """Frees the matrix after its last use before the marker, and makes it again later."""
        recipe = replacement.recipe
        allocated = self._allocation(recipe.matrix)
        whole = int(self.program.layout.whole_submatrix[recipe.matrix])
        free = DeallocMatrix(matrix=whole)
        self.edit.insert(recipe.last_forward + 1, np.array([free.row], np.int32))
        allocation = self.program.table[[allocated]].copy()
        allocation[0, 2] = replacement.later
        steps = recipe.steps.copy()
        for step in steps:
            names = SCHEMA.is_matrix[step[OPCODE_COLUMN]] & (step > 0)
            step[names] = [self._in_step(int(each), recipe) for each in step[names]]
        if recipe.part:
            self._keep_part(replacement, allocated)
            steps = np.concatenate([self._copy_of_part(replacement), steps])
        self.edit.insert(recipe.first_backward, np.concatenate([allocation, steps]))

    def _in_step(self, submatrix: int, recipe: Recipe) -> int:
        if submatrix >= len(self.program.submatrices):
            return submatrix  # made for the recipe
        return self._renamed(submatrix, recipe.first_backward)

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
        for command, column in self._named[replacement.recipe.matrix]:
            named = self._parts[int(program.table[command, column])]
            is_use = int(program.opcodes[command]) not in _SIZING
            if is_use and not self._parts[part].contains(named):
                self.edit.insert(command, np.array([copy.row], np.int32))
                break
        self.edit.insert(len(program.table), np.array([free.row], np.int32))


_SIZING = (AllocMatrixUndefined.OPCODE, AllocMatrixZeroed.OPCODE, DeallocMatrix.OPCODE)
