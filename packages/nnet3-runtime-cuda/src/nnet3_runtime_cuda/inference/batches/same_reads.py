"""Compares the rows that two computations read.

Rows that read the same rows in both have the same values in both: a row is a function of the rows
that it reads, from the inputs on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import ComponentInputNode, InputNode, OutputNode
from nnet3_graph import ComputationGraph

Ids = npt.NDArray[np.int32]

_NODE, _T = 0, 2
"""Columns of cindexes: node, n, t, x."""

_NOTHING, _MISSING = -1, -2
"""In place of a cindex: a term that is left out of a sum; a row that the other computation
lacks."""


def reads_the_same(part: ComputationGraph, whole: ComputationGraph, shift: int = 0) -> bool:
    """Whether each row that `part` computes is in `whole`, and reads the same rows there.

    Rows that depend on the node 'input' are `shift` frames later in `whole`. Other rows have the
    same time in both, such as an i-vector, which is valid for all frames.

    Args:
        part: The smaller computation.
        whole: A computation of the same network.
        shift: Frames, a multiple of the modulus of the network.
    """
    moved = part.cindexes.copy()
    moved[_moving_nodes(part)[moved[:, _NODE]], _T] += shift
    found = whole.find(moved)
    places = np.append(np.where(found < 0, _MISSING, found), _NOTHING)  # places[-1] is _NOTHING
    nodes = range(len(part.nnet.nodes))
    return all(_node_reads_the_same(node, part, whole, places) for node in nodes)


def _node_reads_the_same(
    node: int, part: ComputationGraph, whole: ComputationGraph, places: Ids
) -> bool:
    """Whether the rows of a node are in `whole` and read the same there.

    Args:
        node: Number of the node.
        part: The smaller computation.
        whole: The other one.
        places: The cindex id in `whole` for each of `part`.
    """
    definition = part.nnet.nodes[node]
    ids = places[part.node_range(node)]
    if isinstance(definition, InputNode) or not len(ids):
        return True  # the rows that read an input look it up
    if (ids == _MISSING).any():
        return False
    rows = ids - whole.node_range(node).start
    if isinstance(definition, ComponentInputNode | OutputNode):
        # A set of rows does not say which of them stands where in an Append.
        pairs = zip(part.leaf_ids(node), whole.leaf_ids(node), strict=True)
        return all(np.array_equal(places[mine], theirs[:, rows]) for mine, theirs in pairs)
    splits, reads = part.dependencies_of(node)
    other_splits, other_reads = whole.dependencies_of(node)
    starts, counts = other_splits[:-1][rows], np.diff(other_splits)[rows]
    if not np.array_equal(np.diff(splits), counts):
        return False
    within = np.arange(len(reads)) - np.repeat(splits[:-1], counts)
    return np.array_equal(places[reads], other_reads[np.repeat(starts, counts) + within])


def _moving_nodes(graph: ComputationGraph) -> npt.NDArray[np.bool_]:
    """For each node, whether it depends on the node 'input'."""
    nodes, count = graph.cindexes[:, _NODE], len(graph.nnet.nodes)
    reads = np.zeros((count, count), dtype=np.bool_)
    reads[np.repeat(nodes, np.diff(graph.dependency_splits)), nodes[graph.dependencies]] = True
    moving = np.zeros(count, dtype=np.bool_)
    moving[graph.nnet.node_index("input")] = True
    while (reads[:, moving].any(axis=1) & ~moving).any():
        moving |= reads[:, moving].any(axis=1)
    return moving
