"""The options of the objective of 'chain' models; the module imports nothing that computes."""

from __future__ import annotations

import math

import attrs
from nnet3_runtime_cuda import TrainingError

from nnet3_training import fields


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

    leaky_hmm_coefficient: float = fields.number(TrainingError, 1e-5, above=0.0, below=1.0)
    l2_regularize: float = fields.number(TrainingError, 0.0, below=math.inf)
    out_of_range_regularize: float = fields.number(TrainingError, 0.01, below=math.inf)
    xent_regularize: float = fields.number(TrainingError, 0.0, below=math.inf)
    apply_deriv_weights: bool = fields.switch(TrainingError, True)
