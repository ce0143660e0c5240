"""Ways to make the content of a matrix again, at little cost, from matrices that are kept."""

from __future__ import annotations

from collections.abc import Iterator

from nnet3_computation.arrays import Ids

from nnet3_optimizer.draft import Draft
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.passes.backward.recompute_activations.copies_elsewhere import CopiesElsewhere
from nnet3_optimizer.passes.backward.recompute_activations.kept import Kept, Recipe
from nnet3_optimizer.passes.backward.recompute_activations.repeated_copies import RepeatedCopies
from nnet3_optimizer.passes.backward.recompute_activations.terms_of_sums import TermsOfSums


class RecipeBook:
    """Finds recipes.

    Lists of rows and submatrices that recipes need are added to the edit; `renumber` removes the
    unused ones.
    """

    def __init__(
        self, draft: Draft, marker: int, edit: Edit, candidates: Ids, as_bits: Ids
    ) -> None:
        """Prepares the three ways for all candidates at once.

        Args:
            draft: The draft.
            marker: The command between the two parts.
            edit: Gets what recipes need.
            candidates: Matrices that both parts use.
            as_bits: Matrices that `memory_compression` will keep as bits.
        """
        kept = Kept(draft, marker, edit, candidates)
        self._ways = RepeatedCopies(kept), CopiesElsewhere(kept), TermsOfSums(kept)
        self._as_bits = frozenset(as_bits.tolist())

    def recipes(self, matrix: int) -> Iterator[Recipe]:
        """Returns the recipes for a matrix, the most exact first."""
        for way in self._ways:
            found = way.find(matrix)
            if found is not None and self._as_bits.isdisjoint(found.sources):
                yield found
