"""Which matrices are worth computing again: those that are in the way at the peak."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nnet3_optimizer.analysis.csr import Ids
from nnet3_optimizer.analysis.variables import NUM_COLS, NUM_ROWS
from nnet3_optimizer.compression import ONE_BIT
from nnet3_optimizer.memory.live import FLOAT_BYTES, compressed_bytes, matrix_bytes
from nnet3_optimizer.passes.compression_of_activations import Gap
from nnet3_optimizer.passes.recomputation.recipes import Recipe, RecipeBook
from nnet3_optimizer.program import Program

WORTH_RECOMPUTING = 1 / 250
"""The least part of the peak that a matrix has to hold."""


class LiveBytes:
    """The bytes in use during each command, and how recipes change them.

    Attributes:
        bytes: (C,) int64.
        begin, end: (M,) int64, the first and the last command that uses each matrix.
    """

    def __init__(self, program: Program, as_bits: Sequence[Gap]) -> None:
        """Works them out.

        Args:
            program: The program.
            as_bits: Matrices that will be kept as bits from the forward to the backward part.
        """
        self.sizes = matrix_bytes(program.matrices)
        self.begin, end = program.analysis.matrix_use
        self.end = np.where(program.analysis.lifetimes.is_output, len(program.table) - 1, end)
        self._program = program
        change = np.zeros(len(program.table) + 1, dtype=np.int64)
        used = self.begin >= 0
        np.add.at(change, self.begin[used], self.sizes[used])
        np.add.at(change, self.end[used] + 1, -self.sizes[used])
        self.bytes: Ids = np.cumsum(change)[:-1]
        for gap in as_bits:
            small = compressed_bytes(program.matrices[gap.matrix], ONE_BIT)
            self.bytes[gap.last_forward + 1 : gap.first_backward] += small - self.sizes[gap.matrix]

    def part_bytes(self, recipe: Recipe) -> int:
        """Returns the bytes of what is kept in a matrix of its own."""
        part = self._program.submatrices[recipe.part].astype(np.int64)
        return int(part[NUM_ROWS] * part[NUM_COLS]) * FLOAT_BYTES

    def freed_at(self, command: int, recipe: Recipe, ends: dict[int, int]) -> int:
        """Returns how many bytes fewer are in use during a command if a recipe is followed."""
        if not recipe.last_forward < command < recipe.first_backward:
            return 0
        longer = sum(
            int(self.sizes[source])
            for source in recipe.sources
            if ends.get(source, int(self.end[source])) < command
        )
        return int(self.sizes[recipe.matrix]) - self.part_bytes(recipe) - longer

    def with_recipe(self, recipe: Recipe, ends: dict[int, int]) -> Ids:
        """Returns the bytes, (C,), if a recipe is followed.

        Args:
            recipe: The recipe.
            ends: The last use of matrices that are kept for longer than in the program.
        """
        result = self.bytes.copy()
        size, kept = int(self.sizes[recipe.matrix]), self.part_bytes(recipe)
        end = int(self.end[recipe.matrix])
        result[int(self.begin[recipe.matrix]) : end + 1] += kept
        result[recipe.last_forward + 1 : recipe.first_backward] -= size
        for source in recipe.sources:
            last = ends.get(source, int(self.end[source]))
            result[last + 1 : recipe.first_backward] += int(self.sizes[source])
        return result


def select(
    book: RecipeBook, live: LiveBytes, candidates: Ids
) -> tuple[list[Recipe], dict[int, int]]:
    """Chooses recipes, the one that frees most at the peak first, until none lowers the peak.

    Args:
        book: Finds the recipes.
        live: The bytes in use; afterwards with the recipes that were chosen.
        candidates: The matrices that may be computed again.

    Returns:
        The recipes, and the last use of sources that are now needed for longer.
    """
    least = WORTH_RECOMPUTING * int(live.bytes.max(initial=0))
    open_recipes = _all_recipes(book, live, candidates, least)
    chosen: list[Recipe] = []
    ends: dict[int, int] = {}
    needed: set[int] = set()
    given_up: set[int] = set()
    while True:
        peak = int(live.bytes.argmax())
        freed = [(live.freed_at(peak, recipe, ends), recipe) for recipe in open_recipes]
        for gain, recipe in sorted(freed, key=lambda each: -each[0]):
            if gain < least:
                return chosen, ends
            if recipe.matrix in needed or not given_up.isdisjoint(recipe.sources):
                continue
            after = live.with_recipe(recipe, ends)
            if after.max() <= live.bytes[peak]:
                break
        else:
            return chosen, ends
        live.bytes = after
        chosen.append(recipe)
        given_up.add(recipe.matrix)
        needed.update(recipe.sources)
        for source in recipe.sources:
            last = max(ends.get(source, int(live.end[source])), recipe.first_backward)
            ends[source] = last
        open_recipes = [other for other in open_recipes if other.matrix != recipe.matrix]


def _all_recipes(book: RecipeBook, live: LiveBytes, candidates: Ids, least: float) -> list[Recipe]:
    """Returns the recipes of large matrices, the one that frees most first."""
    large = candidates[live.sizes[candidates] >= least]
    found: list[tuple[int, Recipe]] = []
    for matrix in large[np.argsort(-live.sizes[large], kind="stable")].tolist():
        for recipe in book.recipes(matrix):
            freed = int(live.sizes[matrix]) - live.part_bytes(recipe)
            if freed >= least:
                found.append((freed, recipe))
    found.sort(key=lambda each: -each[0])
    return [recipe for _, recipe in found]
