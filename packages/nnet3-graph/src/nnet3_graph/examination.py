"""The state of every row that the search for a graph meets, and its usable count."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation.arrays import Bools, IntArray, expand_ranges
from nnet3_descriptors import Nnet
from nnet3_descriptors.indexes import IndexArray

from nnet3_graph.graph import ComputationGraph, make_graph
from nnet3_graph.nodes import NodeRules, node_rules
from nnet3_graph.rows import Reach, make_layout
from nnet3_graph.sets.bits import BitLayout, Bits, Hull, change_layout, join
from nnet3_graph.sets.index_set import Grid, IndexSet, Patterns


class ComputableInfo(enum.IntEnum):
    """The state of a cindex in the examination."""

    UNKNOWN = 0
    """The search has not met it, or does not know yet whether it can be computed."""
    COMPUTABLE = 1
    """It is given, or can be computed from the given rows."""
    NOT_COMPUTABLE = 2
    """It cannot be computed from the given rows."""
    WILL_NOT_COMPUTE = 3
    """No computable row would use it, so the search did not find out whether it can be computed."""


@attrs.frozen(kw_only=True, eq=False)
class Examined:
    """Every cindex that the builder met while it built a graph.

    These are the rows that are given or requested, and all that the computable ones among them
    might read, directly or through others.

    Attributes:
        graph: the cindexes. The dependencies of each are the cindexes that it might read, as far as
            the builder met them. The builder met all dependencies of a computable cindex whose
            usable count is not 0.
        computable_info: (N,) int8, a `ComputableInfo` for each cindex of the graph.
        usable_counts: (N,) int32: 1 for a requested row; for others the number of cindexes that
            might read it, are not NOT_COMPUTABLE, and have themselves a count that is not 0.
    """

    graph: ComputationGraph
    computable_info: npt.NDArray[np.int8]
    usable_counts: IntArray

    def info(self, node: int, indexes: IndexArray) -> npt.NDArray[np.int8]:
        """Returns the `ComputableInfo` of rows of a node.

        Args:
            node: number of the node.
            indexes: (K, 3) int32, columns n, t, x.

        Returns:
            (K,) int8; UNKNOWN for rows that did not come up.
        """
        rows = self.graph.cindex_ids(node, indexes) - self.graph.first_cindex_id
        info = np.full(len(rows), ComputableInfo.UNKNOWN, dtype=np.int8)
        info[rows >= 0] = self.computable_info[rows[rows >= 0]]
        return info


def examine(
    nnet: Nnet, patterns: Patterns, reach: Reach, previous: ComputationGraph | None
) -> Examined:
    """Computes the state and the usable count of each cindex, as arrays.

    The builder does not need this: it leaves out rows outside the bounds at once.
    """
    nodes = node_rules(nnet)
    asking = [
        (rows | reach.outputs.get(node, 0)) & ~given & ~earlier
        for node, (rows, given, earlier) in enumerate(
            zip(reach.need, reach.given, reach.earlier, strict=True)
        )
    ]
    layout = _wider_layout(nodes, reach, asking)
    asking, given, earlier, have = (
        [change_layout(bits, reach.layout, layout) for bits in sets]
        for sets in (asking, reach.given, reach.earlier, reach.have)
    )
    read = [0] * len(asking)
    for node, bits in enumerate(asking):
        if bits:
            nodes.rules[node].demand(bits, layout, read)
    box = layout.box(layout.hull)
    rows = [
        (asked | supplied | some & box) & ~before
        for asked, supplied, some, before in zip(asking, given, read, earlier, strict=True)
    ]
    grid = Grid(layout=layout, patterns=patterns)
    graph = make_graph(
        nnet, grid, rows=rows, given=given, earlier=earlier, previous=previous, is_pruned=False
    )
    computable = _marked(graph, have)
    outputs = [
        change_layout(reach.outputs.get(node, 0), reach.layout, layout) for node in range(len(rows))
    ]
    counts = _usable_counts(graph, computable, _marked(graph, outputs))
    info = np.where(computable, ComputableInfo.COMPUTABLE, ComputableInfo.NOT_COMPUTABLE)
    info[(counts == 0) & ~graph.is_input] = ComputableInfo.WILL_NOT_COMPUTE
    return Examined(graph=graph, computable_info=info.astype(np.int8), usable_counts=counts)


def _wider_layout(nodes: NodeRules, reach: Reach, asking: Sequence[Bits]) -> BitLayout:
    """Returns a layout that also holds what some rows might read outside of the bounds."""
    hull = reach.layout.hull

    def widen(_: int, read: Hull) -> None:
        nonlocal hull
        hull = join(hull, read)

    for node, bits in enumerate(asking):
        if bits:
            nodes.rules[node].want(reach.layout.hull_of(bits), widen)
    return make_layout(hull, reach.layout.num_patterns, nodes)


def _marked(graph: ComputationGraph, sets: Sequence[Bits]) -> Bools:
    """Returns, for each cindex of a graph, whether it is in the set of its node."""
    marked = np.zeros(graph.num_cindexes, dtype=np.bool_)
    for node, index_set in enumerate(graph.index_sets):
        some = IndexSet(grid=graph.grid, bits=sets[node] & index_set.bits)
        if some.bits:
            start = graph.node_range(node).start - graph.first_cindex_id
            marked[start + index_set.find_moved(some, 0, 0)] = True
    return marked


def _usable_counts(graph: ComputationGraph, computable: Bools, is_output: Bools) -> IntArray:
    """Returns the usable count of each cindex; see `Examined`."""
    usable = is_output.copy()
    counts = is_output.astype(np.int32)
    frontier = np.flatnonzero(is_output)
    while len(frontier):
        reading = frontier[computable[frontier]]
        starts, ends = graph.dependency_splits[reading], graph.dependency_splits[reading + 1]
        read = graph.dependencies[expand_ranges(starts, ends - starts)] - graph.first_cindex_id
        read = read[read >= 0]
        counts += np.bincount(read, minlength=len(counts)).astype(np.int32)
        frontier = np.unique(read[~usable[read]])
        usable[frontier] = True
    return counts
