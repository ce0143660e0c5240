"""The context that pages and notebooks show."""

from __future__ import annotations

from nnet3_descriptors import Nnet
from nnet3_graph import ContextError, compute_context


def context_of(nnet: Nnet) -> tuple[int, int] | None:
    """Returns left and right context in frames; None where it is not defined."""
    try:
        return compute_context(nnet)
    except ContextError:  # other inputs or outputs, or no output from frames of input alone
        return None
