"""The choice of matrices that are worth making again: large ones that live at the peak."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from nnet3_computation.analysis import NUM_COLS, NUM_ROWS
from nnet3_computation.arrays import Ids, where
from nnet3_computation.commands import ONE_BIT
from nnet3_computation.memory import FLOAT_BYTES, compressed_bytes, matrix_bytes

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.passes.backward.memory_compression import Idle
from nnet3_optimizer.passes.backward.recompute_activations.kept import Recipe
from nnet3_optimizer.passes.backward.recompute_activations.recipes import RecipeBook

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
        self.sizes = matrix_bytes(draft.matrices)
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
            sizes //= FLOAT_BYTES // INT16_BYTES
            is_output = self._draft.analysis.lifetimes.is_output
            sizes[is_output] = self.sizes[is_output]
        shapes = [*map(tuple, matrices[bits.matrix].tolist())]
        small = {each: compressed_bytes(np.array(each), ONE_BIT) for each in set(shapes)}
        sizes[bits.matrix] = [small[each] for each in shapes]
        return sizes

    def part_bytes(self, recipe: Recipe) -> int:
        """Returns the bytes of the part that is kept in a matrix of its own."""
        part = self._draft.submatrices[recipe.part].astype(np.int64)
        return int(part[NUM_ROWS] * part[NUM_COLS]) * FLOAT_BYTES

    def with_recipe(self, recipe: Recipe) -> Ids:
        """Returns the bytes, (C,), if a recipe is followed."""
        change = np.zeros(len(self.bytes) + 1, dtype=np.int64)
        size = int(self.idle_sizes[recipe.matrix])
        if recipe.part:
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


def select(book: RecipeBook, live: LiveBytes, candidates: Ids, least: float) -> list[Recipe]:
    """Chooses recipes, the one that frees most at the peak first, until none lowers the peak.

    Args:
        book: Finds the recipes.
        live: The bytes in use; afterwards with the recipes that were chosen.
        candidates: The matrices that may be computed again.
        least: The least number of bytes that a recipe has to free.

    Returns:
        The recipes.
    """
    recipes = _all_recipes(book, live, candidates, least)
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


def _all_recipes(book: RecipeBook, live: LiveBytes, candidates: Ids, least: float) -> list[Recipe]:
    """Returns the recipes of large matrices, the one that frees most first."""
    found: list[tuple[int, Recipe]] = []
    for matrix in candidates[np.argsort(-live.idle_sizes[candidates], kind="stable")].tolist():
        for recipe in book.recipes(matrix):
            freed = int(live.idle_sizes[matrix]) - (live.part_bytes(recipe) if recipe.part else 0)
            if freed >= least:
                found.append((freed, recipe))
    found.sort(key=lambda each: -each[0])
    return [recipe for _, recipe in found]
