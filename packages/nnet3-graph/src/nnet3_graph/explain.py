"""Why an output cannot be computed, said so that the reader knows what to supply."""

from __future__ import annotations

from nnet3_descriptors.nnet import Nnet

from nnet3_graph.errors import NotComputableError
from nnet3_graph.reach import Reach


def explain(nnet: Nnet, reach: Reach) -> NotComputableError:
    """Returns the error to raise."""
    names = [nnet.node_names[node] for node in reach.missing_outputs]
    return NotComputableError(f"outputs {names} cannot be computed")
