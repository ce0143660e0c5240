"""Recomputation: less is kept from the forward to the backward part.

`recipes` finds how a matrix can be made again, in three ways (`repeated_copies`,
`copies_elsewhere`, `terms_of_sums`) from what `kept` knows of it, `selection` chooses what lowers
the peak, `rewriting` changes the draft, and `recompute_activations` is the pass with its rules.
"""

from nnet3_optimizer.passes.backward.recompute_activations.recompute_activations import (
    recompute_activations,
)

__all__ = ["recompute_activations"]
