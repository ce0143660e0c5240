"""Fine-tuning: a run of small steps from a trained network, in which only parameters change.

Batch-norm computes with the statistics of the network, and dropout is off. So the network begins
with the outputs that it has in use.
"""

from __future__ import annotations

from nnet3_descriptors import Nnet, set_test_mode, unvectorize, vectorize
from nnet3_descriptors.editing import set_learning_rate_factor

from nnet3_training.errors import RecipeError
from nnet3_training.recipes.iterations import RecipeOptions


def prepared(nnet: Nnet, options: RecipeOptions) -> Nnet:
    """The network as a job trains it: when fine-tuning, in test mode, with frozen components.

    Raises:
        RecipeError: a pattern in `options.freeze` matches no component with parameters.
    """
    if options.fine_tuning:
        nnet = set_test_mode(nnet)
    for pattern in options.freeze:
        frozen = set_learning_rate_factor(nnet, 0.0, pattern)
        if all(one is other for one, other in zip(nnet.components, frozen.components, strict=True)):
            raise RecipeError(
                f"freeze: expected components with parameters with names like '{pattern}', found "
                "none"
            )
        nnet = frozen
    return nnet


def kept(before: Nnet, after: Nnet, options: RecipeOptions) -> Nnet:
    """The result of training: when fine-tuning, the network before with new parameters."""
    return unvectorize(before, vectorize(after)) if options.fine_tuning else after
