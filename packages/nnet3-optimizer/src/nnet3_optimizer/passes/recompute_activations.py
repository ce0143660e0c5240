"""Pass: splices and sums are freed after the forward part and made again for the backward part."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from nnet3_computation import commands as c
from nnet3_computation import computation, memory
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
from nnet3_descriptors.indexes import distinct

from nnet3_optimizer.draft import Draft, Edit
from nnet3_optimizer.passes.memory_compression import Idle, idle_matrices
from nnet3_optimizer.passes.move_sizing_commands import move_sizing_commands
from nnet3_optimizer.passes.recompute_recipes import Recipe, RecipesOf, recipe_finder


def recompute_activations(draft: Draft, level: int) -> Draft:
    """Frees activations after the forward part and makes them again just before they are needed.

    A matrix may go if it is neither input nor output, and the backward part only reads it. There
    are three ways to make it again:

    1. All of it was copied, row by row, from matrices that are kept and unchanged (the arguments of
       an Append, a change of the order of rows). The copies are repeated: the result is the same
       bit for bit. Copies may also read one part of the matrix itself; this part is then kept in a
       matrix of its own.
    2. All rows of it were copied to a matrix that is kept: they are copied back, bit for bit.
    3. It is a term of a sum, such as the output of a layer with a bypass: it is the sum less the
       other terms, up to rounding. The scales of the other terms are at most 1, so the rounding
       errors are no larger than those of the sum. A NoOp in place changes nothing. This way is not
       used for a matrix that is read by the backward pass of a rectifier, or of another component
       for which a small value differs from zero.

    The pass takes only large matrices that lower the peak, the one that frees most first. If
    needed, their sources are freed later. No component runs twice. Matrices that
    `memory_compression` will compress at a level count with their compressed size.

    Before::

        m1 = 6 x 4
        m2 = 4 x 8
        m3 = 4 x 4
        m4 = 4 x 4
        m5 = 4 x 4
        m6 = 4 x 4
        m1 = accept input
        m2 = undefined
        m2(:, 0:3) = m1(0:3, :)
        m2(:, 4:7) = m1(2:5, :)
        free m1
        m3 = undefined
        m3 = wide.propagate(m2)
        m4 = undefined
        m4 = affine.propagate(m3)
        provide output = m4
        segment end
        m5 = accept output
        m6 = zeros
        m6 = affine.backprop(m5, input m3)
        free m3
        free m5
        - = wide.backprop(m6, input m2)
        free m2
        free m6

    After::

        m1 = 6 x 4
        m2 = 4 x 8
        m3 = 4 x 4
        m4 = 4 x 4
        m5 = 4 x 4
        m6 = 4 x 4
        m7 = 4 x 8
        m1 = accept input
        m2 = undefined
        m2(:, 0:3) = m1(0:3, :)
        m2(:, 4:7) = m1(2:5, :)
        m3 = undefined
        m3 = wide.propagate(m2)
        free m2
        m4 = undefined
        m4 = affine.propagate(m3)
        provide output = m4
        segment end
        m5 = accept output
        m6 = zeros
        m6 = affine.backprop(m5, input m3)
        free m3
        free m5
        m7 = undefined
        m7(:, 0:3) = m1(0:3, :)
        m7(:, 4:7) = m1(2:5, :)
        free m1
        - = wide.backprop(m6, input m7)
        free m7
        free m6
    """
    markers = draft.positions(c.NoOperationMarker.OPCODE)
    if c.is_loop(draft.table) or len(markers) != 1 or len(draft.positions(c.SwapMatrix.OPCODE)):
        return draft
    marker = int(markers[0])
    candidates = _candidates(draft, marker)
    if not len(candidates):
        return draft
    edit = Edit(draft)
    bits, others = idle_matrices(draft, marker, level)
    live = LiveBytes(draft, marker, bits, others)
    least = WORTH_RECOMPUTING * int(live.bytes.max(initial=0))
    candidates = candidates[live.idle_sizes[candidates] >= least]
    recipes_of = recipe_finder(draft, marker, edit, candidates, bits.matrix)
    recipes = select(recipes_of, live, candidates, least)
    if not recipes:
        return draft
    Rewriting(draft, edit, recipes).follow(live.free_from)
    return move_sizing_commands(edit.draft())


def _candidates(draft: Draft, marker: int) -> Ids:
    """Returns the matrices that are allocated, and used before and after the marker."""
    first, last = draft.analysis.matrix_use
    at = draft.positions(c.AllocMatrixUndefined.OPCODE, c.AllocMatrixZeroed.OPCODE)
    allocated = draft.submatrices[draft.table[at, c.FIRST_OPERAND_COLUMN], MATRIX]
    times_allocated = np.bincount(allocated, minlength=len(draft.matrices))
    lifetimes = draft.analysis.lifetimes
    fits = (times_allocated == 1) & (lifetimes.deallocate > marker)
    fits &= (first >= 0) & (first < marker) & (last > marker)
    return np.flatnonzero(fits & ~lifetimes.is_output & ~lifetimes.is_input)


WORTH_RECOMPUTING = 1 / 250
"""The least part of the peak that a matrix has to hold."""


NOT_NOW = -1.0

INT16_BYTES = 2


class LiveBytes:
    """The bytes in use during each command, and how recipes change them.

    Attributes:
        sizes: (M,) int64, the bytes of each matrix.
        idle_sizes: (M,) int64, the bytes of each matrix while it is idle between the two parts.
        longer: (M,) int64, the bytes of each matrix between its end and a later use.
        bytes: (C,) int64.
        begin: (M,) int64, the first command that uses each matrix.
        free_from: (M,) int64, the first command that each matrix need not exist during. That of
            what recipes need for longer moves to the command before which their steps run.
    """

    def __init__(self, draft: Draft, marker: int, bits: Idle, others: Idle) -> None:
        """Computes the bytes.

        Args:
            draft: The draft.
            marker: The command between the two parts.
            bits: Matrices that will be compressed to one bit an element while they are idle.
            others: Matrices that will be compressed to 16 bits.
        """
        self.sizes = memory.matrix_bytes(draft.matrices)
        self.begin, end = draft.analysis.matrix_use
        end = np.where(draft.analysis.lifetimes.is_output, len(draft.table) - 1, end)
        self.free_from = end + 1
        self._draft, self._marker = draft, marker
        used, count = where(self.begin >= 0), len(draft.table) + 1
        sizes = self.sizes.take(used)  # sums of sizes are exact: they are far below 2^53
        change = np.bincount(self.begin.take(used), sizes, count)
        self._starting: Ids = change.astype(np.int64)
        change -= np.bincount(self.free_from.take(used), sizes, count)
        self.idle_sizes = self._idle_sizes(bits, others)
        self.longer = np.where(end <= marker, self.idle_sizes, self.sizes)
        self._wakes = np.zeros(len(self.sizes), dtype=np.int64)
        for idle in (bits, others):
            self._wakes[idle.matrix] = idle.first_backward
            saved = self.sizes[idle.matrix] - self.idle_sizes[idle.matrix]
            np.subtract.at(change, idle.last_forward + 1, saved)
            np.add.at(change, idle.first_backward, saved)
        self.bytes: Ids = np.cumsum(change.astype(np.int64))[:-1]

    def _idle_sizes(self, bits: Idle, others: Idle) -> Ids:
        """Returns `idle_sizes`."""
        sizes, matrices = self.sizes.copy(), self._draft.matrices
        if len(others.matrix):  # recipes make other matrices idle too
            sizes //= memory.FLOAT_BYTES // INT16_BYTES
            is_output = self._draft.analysis.lifetimes.is_output
            sizes[is_output] = self.sizes[is_output]
        shapes = [*map(tuple, matrices[bits.matrix].tolist())]
        small = {each: memory.compressed_bytes(np.array(each), c.ONE_BIT) for each in set(shapes)}
        sizes[bits.matrix] = [small[each] for each in shapes]
        return sizes

    def part_bytes(self, recipe: Recipe) -> int:
        """Returns the bytes of the part that is kept in a matrix of its own; 0 without one."""
        part = self._draft.submatrices[recipe.part].astype(np.int64)
        return int(part[NUM_ROWS] * part[NUM_COLS]) * memory.FLOAT_BYTES

    def with_recipe(self, recipe: Recipe) -> Ids:
        """Returns the bytes, (C,), if a recipe is followed."""
        change = np.zeros(len(self.bytes) + 1, dtype=np.int64)
        size = int(self.idle_sizes[recipe.matrix])
        kept = self.part_bytes(recipe)
        change[self.begin[recipe.matrix]] += kept
        change[self.free_from[recipe.matrix]] -= kept
        change[recipe.last_forward + 1] -= size
        change[recipe.first_backward] += size
        for source in recipe.sources:
            freed, wakes = int(self.free_from[source]), int(self._wakes[source])
            if freed < recipe.first_backward:
                change[freed] += self.longer[source]
                change[recipe.first_backward] -= self.longer[source]
            if recipe.first_backward < wakes:
                saved = self.sizes[source] - self.idle_sizes[source]
                change[recipe.first_backward] += saved
                change[wakes] -= saved
        result: Ids = self.bytes + np.cumsum(change)[:-1]
        return result

    def follow(self, recipe: Recipe, after: Ids) -> None:
        """Follows a recipe, with which `after`, (C,), are in use."""
        self.bytes = after
        at = recipe.first_backward
        for source in recipe.sources:
            if self.free_from[source] <= self._marker + 1 or self._wakes[source] > at:
                self._wakes[source] = at
            self.longer[source] = self.sizes[source]
            self.free_from[source] = max(int(self.free_from[source]), at)

    def while_following(self, recipe: Recipe, after: Ids) -> int:
        """Returns the bytes in use when the steps of a recipe run.

        The matrices that they read exist then; the ones that the backward part uses next do not
        yet.

        Args:
            recipe: The recipe.
            after: The bytes, (C,), with it.
        """
        at = recipe.first_backward
        sources = np.array(recipe.sources, dtype=np.int64)
        is_uncounted = self.free_from[sources] <= at
        read = int(self.sizes[sources[is_uncounted]].sum())
        return int(after[at] - self._starting[at]) + read


class _Gains:
    """The memory that recipes free, computed for all of them at once."""

    def __init__(self, live: LiveBytes, recipes: list[Recipe]) -> None:
        self._live = live
        self._size = np.array(
            [int(live.idle_sizes[each.matrix]) - live.part_bytes(each) for each in recipes],
            np.int64,
        )
        self._matrix = np.array([each.matrix for each in recipes], dtype=np.int64)
        self._last_forward = np.array([each.last_forward for each in recipes], dtype=np.int64)
        self._first_backward = np.array([each.first_backward for each in recipes], dtype=np.int64)
        counts = [len(each.sources) for each in recipes]
        self._owner = np.repeat(np.arange(len(recipes)), counts)
        self._source = np.array([each for recipe in recipes for each in recipe.sources], np.int64)
        self._is_open = np.ones(len(recipes), dtype=np.bool_)

    def close(self, matrix: int) -> None:
        """Drops the recipes for a matrix."""
        self._is_open &= self._matrix != matrix

    def at(self, command: int) -> npt.NDArray[np.float64]:
        """Returns how many bytes fewer are in use during a command with each recipe, (R,).

        It is NOT_NOW for a recipe that frees nothing then.
        """
        longer = self._live.longer[self._source] * (self._live.free_from[self._source] <= command)
        counts = self._is_open & (self._last_forward < command) & (command < self._first_backward)
        longer_in_all = np.bincount(self._owner, longer, minlength=len(self._size))
        return np.where(counts, self._size - longer_in_all, NOT_NOW)


def select(recipes_of: RecipesOf, live: LiveBytes, candidates: Ids, least: float) -> list[Recipe]:
    """Chooses recipes, the one that frees most at the peak first, until none lowers the peak.

    Args:
        recipes_of: Finds the recipes of a matrix.
        live: The bytes in use; afterwards with the recipes that were chosen.
        candidates: The matrices that may be computed again.
        least: The least number of bytes that a recipe has to free.

    Returns:
        The recipes.
    """
    recipes = _all_recipes(recipes_of, live, candidates, least)
    gains = _Gains(live, recipes)
    chosen: list[Recipe] = []
    needed: set[int] = set()
    given_up: set[int] = set()
    while recipes:
        peak = int(live.bytes.argmax())
        freed = gains.at(peak)
        while True:
            best = int(freed.argmax())
            if freed[best] < least:
                return chosen
            recipe = recipes[best]
            freed[best] = NOT_NOW
            if recipe.matrix in needed or not given_up.isdisjoint(recipe.sources):
                continue
            after = live.with_recipe(recipe)
            if max(after.max(), live.while_following(recipe, after)) <= live.bytes[peak]:
                break
        live.follow(recipe, after)
        chosen.append(recipe)
        given_up.add(recipe.matrix)
        needed.update(recipe.sources)
        gains.close(recipe.matrix)
    return chosen


def _all_recipes(
    recipes_of: RecipesOf, live: LiveBytes, candidates: Ids, least: float
) -> list[Recipe]:
    """Returns the recipes of large matrices, the one that frees most first."""
    found: list[tuple[int, Recipe]] = []
    for matrix in candidates[np.argsort(-live.idle_sizes[candidates], kind="stable")].tolist():
        for recipe in recipes_of(matrix):
            freed = int(live.idle_sizes[matrix]) - live.part_bytes(recipe)
            if freed >= least:
                found.append((freed, recipe))
    found.sort(key=lambda each: -each[0])
    return [recipe for _, recipe in found]


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
        infos: list[computation.MatrixDebugInfo | None] = []
        at_later, at_kept = [], []
        for recipe in recipes:
            at_later.append(len(sizes))
            rows, cols = draft.matrices[recipe.matrix].tolist()
            sizes.append((rows, cols))
            infos.append(draft.debug_info[recipe.matrix] if draft.debug_info else None)
            if recipe.part:
                at_kept.append(len(sizes))
                part = self._uses.rectangle(recipe.part)
                sizes.append((part.rows, part.cols))
                infos.append(computation.NO_DEBUG_INFO)
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
        at, column = (c.SCHEMA.is_matrix[rows[:, c.OPCODE_COLUMN]] & (rows > 0)).nonzero()
        replaced = where(self._later[draft.submatrices[rows[at, column], MATRIX]] > 0)
        at, column = at[replaced], column[replaced]
        command = commands[at]
        self.edit.table[command, column] = self._renamed(rows[at, column], command)
        for command in commands[LIST_COLUMN[rows[:, c.OPCODE_COLUMN]] > 0].tolist():
            self._rename_in_list(command)

    def _renamed(self, submatrices: c.Table | Ids, command: Ids) -> Ids:
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
        self.edit.insert(
            last_forward + 1, c.command_rows(c.DeallocMatrix, len(whole), matrix=whole)
        )

    def _make_again(self) -> None:
        """Inserts the recipes after the marker, each before the first read of its matrix."""
        draft, lifetimes = self.draft, self.draft.analysis.lifetimes
        first_backward = self._first_backward[self._matrices]
        counts = [len(each.steps) for each in self.recipes]
        steps = np.concatenate([each.steps for each in self.recipes])
        owner = np.repeat(self._matrices, counts)
        parts = self._part[self._matrices]
        written = draft.submatrices.take(steps[:, c.FIRST_OPERAND_COLUMN], axis=0)
        are_read = self._are_read(np.concatenate([written, parts]))
        is_read, part_is_read = are_read[: len(steps)], are_read[len(steps) :]
        part_is_read &= self._kept_whole > 0
        named = c.SCHEMA.is_matrix[steps[:, c.OPCODE_COLUMN]] & (steps > 0)
        named &= steps < len(draft.submatrices)  # the rest was made for the recipe
        step, column = named.nonzero()
        place = np.repeat(first_backward, counts)
        steps[step, column] = self._renamed(steps[step, column], place[step])
        is_made = np.bincount(owner[is_read], minlength=len(draft.matrices))[self._matrices] > 0
        is_made |= part_is_read
        self.edit.delete(lifetimes.deallocate[self._matrices[~is_made]])
        allocations = draft.table[lifetimes.allocate[self._matrices[is_made]]]
        allocations[:, c.FIRST_OPERAND_COLUMN] = self._later_whole[is_made]
        self.edit.insert(first_backward[is_made], allocations)
        again = parts[part_is_read]
        again[:, MATRIX] = self._later[again[:, MATRIX]]
        copies = c.command_rows(
            c.MatrixCopy,
            len(again),
            1.0,
            output=self.edit.submatrices(again),
            input=self._kept_whole[part_is_read],
        )
        self.edit.insert(first_backward[part_is_read], copies)
        self.edit.insert(place[is_read], steps[is_read])

    def _are_read(self, written: c.Table | Ids) -> Bools:
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
        part, uses = self._uses.rectangle(recipe.part), self._uses
        allocated = int(self.draft.analysis.lifetimes.allocate[recipe.matrix])
        allocation = self.draft.table[[allocated]]  # zeroed if a command adds to it
        allocation[:, c.FIRST_OPERAND_COLUMN] = kept
        self.edit.insert(allocated, allocation)
        at = uses.of_matrix(recipe.matrix)
        for command, submatrix in zip(
            uses.command[at].tolist(), uses.submatrix[at].tolist(), strict=True
        ):
            if not part.contains(uses.rectangle(submatrix)):
                copy = c.command_rows(c.MatrixCopy, 1, 1.0, output=recipe.part, input=kept)
                self.edit.insert(command, copy)
                break
        end = len(self.draft.table)
        self.edit.insert(end, c.command_rows(c.DeallocMatrix, 1, matrix=kept))

    def _keep_sources(self, free_from: Ids) -> None:
        """Frees the matrices that recipes read only after their last recipe."""
        sources = list(dict.fromkeys(each for recipe in self.recipes for each in recipe.sources))
        freed = self.draft.analysis.lifetimes.deallocate[sources]
        early = (freed >= 0) & (freed < free_from[sources])
        self.edit.insert(free_from[sources][early], self.draft.table[freed[early]])
        self.edit.delete(freed[early])
