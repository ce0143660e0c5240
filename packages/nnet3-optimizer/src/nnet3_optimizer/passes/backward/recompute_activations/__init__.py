"""Recomputation: the backward part makes matrices again, instead of keeping them.

`recipes` finds how a matrix can be made again, in three ways (`repeated_copies`,
`copies_elsewhere`, `terms_of_sums`), with the facts in `kept`. `selection` chooses the recipes that
lower the peak, and `rewriting` changes the draft. `recompute_activations` is the pass with its
rules.
"""

from nnet3_optimizer.passes.backward.recompute_activations.recompute_activations import (
    recompute_activations,
)

__all__ = ["recompute_activations"]
