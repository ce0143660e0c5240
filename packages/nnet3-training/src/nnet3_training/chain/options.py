"""The options of the objective of 'chain' models; the module imports nothing that computes."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import attrs
from nnet3_runtime_cuda import TrainingError


def _coefficient(default: float, *, is_share: bool = False) -> Any:
    """A field for a number of at least 0; a share is above 0 and below 1."""

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        number = float(value) if isinstance(value, Real) else math.nan
        if is_share:
            if not 0.0 < number < 1.0:
                raise TrainingError(f"{field.name} must be above 0 and below 1 (got {value!r})")
        elif not 0.0 <= number < math.inf:
            raise TrainingError(f"{field.name} must be at least 0, and finite (got {value!r})")

    return attrs.field(default=default, validator=check)


def _true_or_false(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, bool):
        raise TrainingError(f"{field.name} must be True or False (got {value!r})")


@attrs.frozen(kw_only=True)
class ChainOptions:
    """The options of the objective; names and defaults are those of Kaldi's nnet3-chain-train.

    Attributes:
        leaky_hmm_coefficient: In each frame the denominator's HMM may go from any state to any
            other. The probability is this coefficient times the average probability of the other
            state.
        l2_regularize: The factor of the term -1/2 times the squared output in the objective.
        out_of_range_regularize: The derivative pulls outputs beyond 30 and -30 back by this factor
            times the distance. Kaldi does so with twice the factor, on half of the minibatches,
            chosen at random.
        xent_regularize: Multiplies the derivative at the cross-entropy output; 0 for no such
            output.
        apply_deriv_weights: Whether derivatives are multiplied by the weights of frames.

    Raises:
        TrainingError: a number is out of range, or the switch is neither True nor False.
    """

    leaky_hmm_coefficient: float = _coefficient(1e-5, is_share=True)
    l2_regularize: float = _coefficient(0.0)
    out_of_range_regularize: float = _coefficient(0.01)
    xent_regularize: float = _coefficient(0.0)
    apply_deriv_weights: bool = attrs.field(default=True, validator=_true_or_false)
