"""Epochs: the order in which nodes are computed.

Nodes that depend on each other (a recurrence) form one strongly connected component of the node
graph, and share an epoch. Epochs are ordered so that a node depends only on nodes of its own epoch
or of earlier ones.
"""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np
from nnet3_computation.arrays import IntArray, freeze, frozen_array
from nnet3_descriptors import Nnet
from nnet3_descriptors.values import remembered
from nnet3_graph.nodes import node_groups
from numpy.typing import NDArray


@attrs.frozen(kw_only=True, eq=False)
class Epochs:
    """The epoch of each node.

    Attributes:
        of_node: (nodes,) int32, counted from 0.
        is_recurrent: (nodes,) bool, whether the epoch has several nodes.
    """

    of_node: IntArray = attrs.field(converter=frozen_array)
    is_recurrent: NDArray[np.bool_]

    @cached_property
    def count(self) -> int:
        """Number of epochs."""
        return int(self.of_node.max()) + 1


@remembered
def compute_epochs(nnet: Nnet) -> Epochs:
    """Returns the epochs of a network's nodes; those of `node_groups`, in that order."""
    groups = node_groups(nnet)
    sizes = [len(group) for group in groups]
    of_node = np.empty(len(nnet.nodes), np.int32)
    nodes = [node for group in groups for node in group]
    of_node[nodes] = np.repeat(np.arange(len(groups)), sizes)
    return Epochs(of_node=freeze(of_node), is_recurrent=np.array(sizes)[of_node] > 1)
