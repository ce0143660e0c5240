"""Epochs: which nodes have to be computed before which others.

Nodes that depend on each other (a recurrence) form one strongly connected component of the node
graph, and share an epoch; the epochs are ordered so that nodes depend only on the same or an
earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from nnet3_descriptors.nodes import ComponentInputNode, ComponentNode, DimRangeNode, OutputNode
from nnet3_descriptors.remembering import remembered
from nnet3_graph.node_order import strongly_connected_components
from numpy.typing import NDArray

from nnet3_compiler.arrays import IntArray, frozen_array
from nnet3_compiler.steps.network import Network

Successors = Sequence[Sequence[int]]
"""A directed graph: for each vertex those that its arcs lead to, ascending."""


@attrs.frozen(kw_only=True, eq=False)
class Epochs:
    """The epoch of each node.

    Attributes:
        of_node: (nodes,) int32, counted from 0.
        is_recurrent: (nodes,) bool, whether the epoch has several nodes.
    """

    of_node: IntArray = attrs.field(converter=frozen_array)
    is_recurrent: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Number of epochs."""
        return int(self.of_node.max()) + 1


@remembered
def compute_epochs(network: Network) -> Epochs:
    """Returns the epochs of a network's nodes.

    Epochs that are independent of each other come in the order in which depth-first searches, in
    the order of the nodes, leave them (last left, first computed).
    """
    successors = node_graph(network)
    members = strongly_connected_components(successors)
    component_of = [0] * len(successors)
    for component, vertices in enumerate(members):
        for vertex in vertices:
            component_of[vertex] = component
    condensed = [
        sorted({component_of[w] for v in vertices for w in successors[v]} - {component})
        for component, vertices in enumerate(members)
    ]
    position = [0] * len(members)
    for rank, component in enumerate(reversed(postorder(condensed))):
        position[component] = rank
    sizes = np.array([len(vertices) for vertices in members])
    return Epochs(
        of_node=[position[component] for component in component_of],
        is_recurrent=sizes[component_of] > 1,
    )


def node_graph(network: Network) -> list[list[int]]:
    """Returns for each node the nodes that use it directly, ascending."""
    nnet = network.nnet
    users: list[list[int]] = [[] for _ in nnet.nodes]
    for number, node in enumerate(nnet.nodes):
        match node:
            case ComponentNode():
                used = {number - 1}
            case DimRangeNode():
                used = {nnet.node_index(node.source)}
            case ComponentInputNode() | OutputNode():
                used = {nnet.node_index(name) for name in node.descriptor.node_names}
            case _:
                used = set()
        for source in used:
            users[source].append(number)
    return users


def postorder(successors: Successors) -> list[int]:
    """Returns the vertices of an acyclic graph, each after those that it leads to.

    Depth-first searches start at the vertices in order and follow arcs in order.
    """
    order: list[int] = []
    visited = [False] * len(successors)
    for root in range(len(successors)):
        if visited[root]:
            continue
        visited[root] = True
        path = [(root, iter(successors[root]))]
        while path:
            vertex, remaining = path[-1]
            for successor in remaining:
                if not visited[successor]:
                    visited[successor] = True
                    path.append((successor, iter(successors[successor])))
                    break
            else:
                path.pop()
                order.append(vertex)
    return order
