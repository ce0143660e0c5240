"""The context that tools print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nnet3_graph

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


def context_of(nnet: Nnet) -> tuple[int, int] | None:
    """Returns left and right context in frames; None where a network has none."""
    try:
        return nnet3_graph.compute_context(nnet)
    except nnet3_graph.ContextError:
        return None
