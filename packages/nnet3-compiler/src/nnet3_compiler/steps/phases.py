"""Phases: an order in which the cindexes can be computed.

Inputs come first, then the epochs one after another. Within the epoch of a recurrence a cindex
belongs to the phase whose number, its *level*, is the length of the longest chain of dependencies
that leads to it inside the epoch (and the segment).
"""

from __future__ import annotations

from typing import TypeVar

import attrs
import numpy as np
from nnet3_computation.arrays import IntArray, expand_ranges, where
from nnet3_descriptors.components import ComponentProperties
from numpy.typing import NDArray

from nnet3_compiler.errors import CompilationError
from nnet3_compiler.steps.epochs import Epochs
from nnet3_compiler.steps.graphs import Graphs
from nnet3_compiler.steps.network import Network, NodeKind

_Number = TypeVar("_Number", int, IntArray)

GIVEN = -1
"""The epoch of inputs."""


@attrs.frozen(kw_only=True, eq=False)
class Phases:
    """The order of phases; phases with lower numbers can be computed first.

    Attributes:
        epochs: The epochs of the nodes.
        level: (cindexes,) int64, the level of each cindex; 0 outside recurrences.
        num_levels: One more than the largest level.
    """

    epochs: Epochs
    level: NDArray[np.int64]
    num_levels: int

    def number(self, segment: int, epoch: _Number) -> _Number:
        """Returns the number of the phase of level 0; those of other levels follow."""
        return (segment * (self.epochs.count + 1) + epoch + 1) * self.num_levels


def compute_phases(network: Network, epochs: Epochs, graphs: Graphs) -> Phases:
    """Returns the phases of a computation.

    Raises:
        CompilationError: Cindexes depend on each other in a circle.
    """
    level = np.zeros(graphs.size, np.int64)
    nodes = where(epochs.is_recurrent).tolist()
    for segment in range(len(graphs.segments)) if nodes else ():
        _find_levels(network, epochs, graphs, segment, nodes, level)
    return Phases(epochs=epochs, level=level, num_levels=int(level.max(initial=0)) + 1)


def _find_levels(
    network: Network,
    epochs: Epochs,
    graphs: Graphs,
    segment: int,
    nodes: list[int],
    level: NDArray[np.int64],
) -> None:
    """Fills in the levels of the cindexes of recurrent nodes in a segment."""
    epoch = np.full(graphs.size, GIVEN, np.int64)
    for node in nodes:
        epoch[graphs.computed(segment, node)] = epochs.of_node[node]
    members = where(epoch != GIVEN)
    user, used = _dependencies(network, graphs, segment, nodes)
    inside = (used >= 0) & (epoch[user] == epoch[used])
    local = np.full(graphs.size, -1, np.int64)
    local[members] = np.arange(len(members))
    found = _longest_chains(len(members), local[user[inside]], local[used[inside]])
    if (found < 0).any():
        node, n, t, x = graphs.cindexes[members[np.argmin(found)]].tolist()
        raise CompilationError(
            f"node '{network.nnet.nodes[node].name}' at (n, t, x) = ({n}, {t}, {x}) depends on "
            "itself: no order of computation works for this recurrence"
        )
    level[members] = found


def _dependencies(
    network: Network, graphs: Graphs, segment: int, nodes: list[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the direct dependencies of the cindexes of some nodes, some maybe repeated.

    Returns:
        (arcs,) the cindex that depends on another, and (arcs,) that other one; -1 for none.
    """
    graph = graphs.segments[segment]
    kind, source = network.kind.tolist(), network.source.tolist()
    is_simple = network.has(ComponentProperties.SIMPLE).tolist()
    users: list[IntArray] = []
    used: list[IntArray] = []
    begins: list[int] = []  # of the ranges of ids that depend on what is in `used`, ...
    counts: list[int] = []  # ... and how many each has
    listed: list[IntArray] = []
    for node in nodes:
        ids = graph.node_range(node)
        rows = ids.stop - ids.start
        tables: tuple[IntArray, ...]
        if kind[node] == NodeKind.DIM_RANGE:
            tables = (graph.moved_ids(source[node], node, 0, 0)[None],)
        elif kind[node] != NodeKind.COMPONENT:
            tables = graphs.leaf_ids(segment, node)
        elif is_simple[node] and not graph.given_sets[node].bits:
            tables = (graph.moved_ids(node - 1, node, 0, 0)[None],)
        else:
            splits, inputs = graph.component_inputs(node)
            users.append(np.repeat(np.arange(ids.start, ids.stop), splits[1:] - splits[:-1]))
            listed.append(inputs)
            continue
        for table in tables:
            used.append(table.reshape(-1))
            begins += [ids.start] * len(table)
            counts += [rows] * len(table)
    ranges = expand_ranges(np.array(begins, np.int64), np.array(counts, np.int64))
    return np.concatenate([ranges, *users]), np.concatenate([*used, *listed])


def _longest_chains(
    size: int, user: NDArray[np.int64], used: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the length of the longest chain that leads to each vertex; -1 on a circle.

    Args:
        size: Number of vertices.
        user: (arcs,) the vertex that depends on...
        used: (arcs,) ... this one.
    """
    order = np.argsort(used, kind="stable")
    begins = np.searchsorted(used[order], np.arange(size + 1)).tolist()
    users = user[order].tolist()
    missing = np.bincount(user, minlength=size).tolist()
    levels = [-1] * size
    ready = [vertex for vertex in range(size) if not missing[vertex]]
    level = 0
    while ready:
        following = []
        for vertex in ready:
            levels[vertex] = level
            for successor in users[begins[vertex] : begins[vertex + 1]]:
                missing[successor] -= 1
                if not missing[successor]:
                    following.append(successor)
        ready = following
        level += 1
    return np.array(levels, np.int64)
