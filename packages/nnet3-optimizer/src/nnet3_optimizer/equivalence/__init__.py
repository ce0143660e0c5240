"""Proof that two computations compute the same."""

from nnet3_optimizer.equivalence.verify import Prover, verify_equivalent

__all__ = ["Prover", "verify_equivalent"]
