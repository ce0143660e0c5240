"""Puts recipes into a draft: the matrix is freed, and a new one takes its place later."""

from __future__ import annotations

import numpy as np
from nnet3_computation.analysis import (
    LIST_COLUMN,
    MATRIX,
    NUM_COLS,
    NUM_ROWS,
    OFFSETS,
    contain,
    overlap,
)
from nnet3_computation.arrays import Bools, Ids, where
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    SCHEMA,
    DeallocMatrix,
    MatrixCopy,
    Table,
    command_rows,
)
from nnet3_computation.computation import NO_DEBUG_INFO, MatrixDebugInfo
from nnet3_descriptors.indexes import distinct

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.passes.backward.recompute_activations.kept import Recipe


class Rewriting:
    """Follows recipes in an edit of a draft."""

    def __init__(self, draft: Draft, edit: Edit, recipes: list[Recipe]) -> None:
        """Adds the matrices that recipes need.

        Args:
            draft: The draft.
            edit: Collects the changes.
            recipes: The recipes.
        """
        self.draft = draft
        self.edit = edit
        self.recipes = recipes
        self._uses = draft.analysis.uses
        num_matrices = len(draft.matrices)
        # By matrix: the matrix in its place, from which command on, and for which part.
        self._later, self._kept = np.zeros((2, num_matrices), dtype=np.int64)
        self._first_backward = np.full(num_matrices, len(draft.table), dtype=np.int64)
        self._part = np.zeros((num_matrices, 5), dtype=np.int64)
        self._matrices = np.array([each.matrix for each in recipes], dtype=np.int64)
        self._later_whole, self._kept_whole = self._replacements()

    def _replacements(self) -> tuple[Ids, Ids]:
        """Makes for each recipe a matrix for the backward part, and one for its part.

        Returns:
            The submatrices that cover them, (recipes,) each; 0 for no part.
        """
        draft, recipes = self.draft, self.recipes
        sizes: list[tuple[int, int]] = []
        infos: list[MatrixDebugInfo | None] = []
        at_later, at_kept = [], []
        for recipe in recipes:
            at_later.append(len(sizes))
            rows, cols = draft.matrices[recipe.matrix].tolist()
            sizes.append((rows, cols))
            infos.append(draft.debug_info[recipe.matrix] if draft.debug_info else None)
            if recipe.part:
                at_kept.append(len(sizes))
                part = self._uses.rectangles[recipe.part]
                sizes.append((part.rows, part.cols))
                infos.append(NO_DEBUG_INFO)
        matrices, whole = self.edit.matrices(sizes, infos)
        self._later[self._matrices] = matrices[at_later]
        self._first_backward[self._matrices] = [each.first_backward for each in recipes]
        parts = np.array([each.part for each in recipes], dtype=np.int64)
        has_part = parts > 0
        self._part[self._matrices[has_part]] = draft.submatrices[parts[has_part]]
        self._kept[self._matrices[has_part]] = matrices[at_kept]
        kept = np.zeros(len(recipes), dtype=np.int64)
        kept[has_part] = whole[at_kept]
        return whole[at_later], kept

    def follow(self, free_from: Ids) -> None:
        """Changes the commands.

        Args:
            free_from: (M,) the first command that each matrix need not exist during.
        """
        self._rename()
        self._free_early()
        for number, recipe in enumerate(self.recipes):
            if recipe.part:
                self._keep_part(recipe, int(self._kept_whole[number]))
        self._make_again()
        self._keep_sources(free_from)

    # -- names ---------------------------------------------------------------------------------

    def _rename(self) -> None:
        """Lets commands name the new matrices."""
        draft, lifetimes = self.draft, self.draft.analysis.lifetimes
        used = self._uses.command[self._uses.of_matrices(self._matrices)]
        sizing = lifetimes.allocate[self._matrices], lifetimes.deallocate[self._matrices]
        commands = distinct(np.concatenate([used, *sizing]))
        rows = draft.table[commands]
        at, column = (SCHEMA.is_matrix[rows[:, OPCODE_COLUMN]] & (rows > 0)).nonzero()
        replaced = where(self._later[draft.submatrices[rows[at, column], MATRIX]] > 0)
        at, column = at[replaced], column[replaced]
        command = commands[at]
        self.edit.table[command, column] = self._renamed(rows[at, column], command)
        for command in commands[LIST_COLUMN[rows[:, OPCODE_COLUMN]] > 0].tolist():
            self._rename_in_list(command)

    def _renamed(self, submatrices: Table | Ids, command: Ids) -> Ids:
        """Returns the submatrices that commands now name.

        Args:
            submatrices: (N,) submatrices of the draft.
            command: (N,) the commands.
        """
        own = self.draft.submatrices[submatrices].astype(np.int64)
        part = self._part[own[:, MATRIX]]
        is_kept = contain(part, own)
        is_later = ~is_kept & (command >= self._first_backward[own[:, MATRIX]])
        own[:, OFFSETS] -= is_kept[:, None] * part[:, OFFSETS]
        matrix = own[:, MATRIX]
        own[:, MATRIX] = np.where(is_kept, self._kept[matrix], self._later[matrix])
        renamed = np.array(submatrices, dtype=np.int64)
        changed = is_kept | is_later
        # `renumber` makes equal submatrices one again.
        renamed[changed] = self.edit.submatrices(own[changed])
        return renamed

    def _rename_in_list(self, command: int) -> None:
        """Gives a command a new list of (submatrix, row) pairs if it names other matrices now."""
        column = int(LIST_COLUMN[self.draft.opcodes[command]])
        number = int(self.draft.table[command, column])
        named = self.draft.pair_lists.named[number]
        renamed = self._renamed(named, np.full(len(named), command))
        if (renamed == named).all():
            return
        changed = self.draft.indexes_multi[number].copy()
        given = changed[:, 0] > 0
        changed[given, 0] = renamed[np.searchsorted(named, changed[given, 0])]
        self.edit.table[command, column] = self.edit.indexes_multi(changed)

    # -- new commands --------------------------------------------------------------------------

    def _free_early(self) -> None:
        """Frees matrices after their last use before the marker."""
        last_forward = np.array([each.last_forward for each in self.recipes], dtype=np.int64)
        whole = self.draft.layout.whole_submatrix[self._matrices]
        self.edit.insert(last_forward + 1, command_rows(DeallocMatrix, len(whole), matrix=whole))

    def _make_again(self) -> None:
        """Inserts the recipes after the marker, each before the first read of its matrix."""
        draft, lifetimes = self.draft, self.draft.analysis.lifetimes
        first_backward = self._first_backward[self._matrices]
        counts = [len(each.steps) for each in self.recipes]
        steps = np.concatenate([each.steps for each in self.recipes])
        owner = np.repeat(self._matrices, counts)
        parts = self._part[self._matrices]
        written = draft.submatrices.take(steps[:, FIRST_OPERAND_COLUMN], axis=0)
        are_read = self._are_read(np.concatenate([written, parts]))
        is_read, part_is_read = are_read[: len(steps)], are_read[len(steps) :]
        part_is_read &= self._kept_whole > 0
        named = SCHEMA.is_matrix[steps[:, OPCODE_COLUMN]] & (steps > 0)
        named &= steps < len(draft.submatrices)  # the rest was made for the recipe
        step, column = named.nonzero()
        place = np.repeat(first_backward, counts)
        steps[step, column] = self._renamed(steps[step, column], place[step])
        is_made = np.bincount(owner[is_read], minlength=len(draft.matrices))[self._matrices] > 0
        is_made |= part_is_read
        self.edit.delete(lifetimes.deallocate[self._matrices[~is_made]])
        allocations = draft.table[lifetimes.allocate[self._matrices[is_made]]]
        allocations[:, FIRST_OPERAND_COLUMN] = self._later_whole[is_made]
        self.edit.insert(first_backward[is_made], allocations)
        again = parts[part_is_read]
        again[:, MATRIX] = self._later[again[:, MATRIX]]
        copies = command_rows(
            MatrixCopy,
            len(again),
            1.0,
            output=self.edit.submatrices(again),
            input=self._kept_whole[part_is_read],
        )
        self.edit.insert(first_backward[part_is_read], copies)
        self.edit.insert(place[is_read], steps[is_read])

    def _are_read(self, written: Table | Ids) -> Bools:
        """Which parts, (N, 5), of matrices that are made again are read later."""
        uses, draft = self._uses, self.draft
        at = uses.of_matrices(self._matrices)
        at = at[uses.command[at] >= self._first_backward[uses.matrix[at]]]
        reads = draft.submatrices.take(uses.submatrix[at], axis=0)
        reads = reads[~contain(self._part[reads[:, MATRIX]], reads)]
        size = draft.matrices.take(reads[:, MATRIX], axis=0)
        is_whole = (reads[:, NUM_ROWS] == size[:, 0]) & (reads[:, NUM_COLS] == size[:, 1])
        all_of_it = np.zeros(len(draft.matrices), dtype=np.bool_)
        all_of_it[reads[is_whole, MATRIX]] = True
        are_read: Bools = all_of_it.take(written[:, MATRIX])
        rest = where(~are_read)
        if len(rest) and len(reads):  # rare: most matrices are read as a whole
            one, other = (each.ravel() for each in np.indices((len(rest), len(reads))))
            pairs = overlap(written.take(rest.take(one), axis=0), reads.take(other, axis=0))
            are_read[rest] = pairs.reshape(len(rest), -1).any(axis=1)
        return are_read

    def _keep_part(self, recipe: Recipe, kept: int) -> None:
        """Makes the part first, in a matrix of its own; the rest is copied from it when needed."""
        part, uses = self._uses.rectangles[recipe.part], self._uses
        allocated = int(self.draft.analysis.lifetimes.allocate[recipe.matrix])
        allocation = self.draft.table[[allocated]]  # zeroed if a command adds to it
        allocation[:, FIRST_OPERAND_COLUMN] = kept
        self.edit.insert(allocated, allocation)
        at = uses.of_matrix(recipe.matrix)
        for command, submatrix in zip(
            uses.command[at].tolist(), uses.submatrix[at].tolist(), strict=True
        ):
            if not part.contains(uses.rectangles[submatrix]):
                copy = command_rows(MatrixCopy, 1, 1.0, output=recipe.part, input=kept)
                self.edit.insert(command, copy)
                break
        end = len(self.draft.table)
        self.edit.insert(end, command_rows(DeallocMatrix, 1, matrix=kept))

    def _keep_sources(self, free_from: Ids) -> None:
        """Frees the matrices that recipes read only after their last recipe."""
        sources = list(dict.fromkeys(each for recipe in self.recipes for each in recipe.sources))
        freed = self.draft.analysis.lifetimes.deallocate[sources]
        early = (freed >= 0) & (freed < free_from[sources])
        self.edit.insert(free_from[sources][early], self.draft.table[freed[early]])
        self.edit.delete(freed[early])
