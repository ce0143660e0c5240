"""Proof that two computations compute the same."""

from nnet3_optimizer.equivalence.verify import verify_equivalent

__all__ = ["verify_equivalent"]
