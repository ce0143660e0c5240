"""The computation graphs of all segments of a computation, seen as one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import attrs
import numpy as np
from nnet3_computation import ComputationRequest
from nnet3_computation.arrays import IntArray, where
from nnet3_descriptors import Nnet
from nnet3_descriptors.structure import NetworkFingerprint
from nnet3_graph import ComputationGraph

from nnet3_compiler.errors import CompilationError


@attrs.frozen(kw_only=True, eq=False)
class Graphs:
    """The pruned graphs of the segments; cindex ids count through all of them.

    Attributes:
        segments: The graph of each segment; each but the first reads from the one before.
    """

    segments: Sequence[ComputationGraph]
    _leaf_ids: dict[tuple[int, int], tuple[IntArray, ...]] = attrs.field(factory=dict, init=False)

    @property
    def size(self) -> int:
        """Number of cindexes of all segments."""
        return self.segments[-1].segment_ends[-1]

    @cached_property
    def cindexes(self) -> IntArray:
        """All cindexes: (cindexes, 4) int32, columns node, n, t, x."""
        if len(self.segments) == 1:
            return self.segments[0].cindexes
        return np.concatenate([graph.cindexes for graph in self.segments])

    def leaf_ids(self, segment: int, node: int) -> tuple[IntArray, ...]:
        """The result of `ComputationGraph.leaf_ids`, remembered, because recurrences ask twice."""
        found = self._leaf_ids.get((segment, node))
        if found is None:
            found = self._leaf_ids[segment, node] = self.segments[segment].leaf_ids(node)
        return found

    def computed(self, segment: int, node: int) -> IntArray | slice:
        """Returns the cindex ids of the rows of a node that the user does not give.

        Returns:
            A slice of ids, or an array of them, ascending.
        """
        graph = self.segments[segment]
        ids = graph.node_range(node)
        if not graph.given_sets[node].bits:
            return ids
        computed: IntArray = where(~graph.is_given(node)).astype(np.int32) + ids.start
        return computed


def check_graph(nnet: Nnet, request: ComputationRequest, graph: ComputationGraph) -> None:
    """Checks that a graph is that of a network and a request.

    The check trusts a pruned graph to hold the rows that its outputs depend on.

    Raises:
        CompilationError: It is of another network, is not pruned, or gives or wants other rows.
    """
    if graph.nnet is not nnet:
        difference = NetworkFingerprint.of(graph.nnet).difference(nnet)
        if difference is not None:
            raise CompilationError(f"the graph is of another network: {difference}")
    if not graph.is_pruned or graph.previous is not None:
        raise CompilationError("the graph must be pruned, and the only segment")
    wanted = {nnet.node_index(io.name): io.indexes for io in request.outputs}
    given = {nnet.node_index(io.name): io.indexes for io in request.inputs}
    is_output = {nnet.node_index(node.name) for node in nnet.output_nodes}
    for node, name in enumerate(nnet.node_names):
        for what, asked, rows in (
            ("given", given.get(node), graph.given_sets[node]),
            ("wanted", wanted.get(node), graph.index_sets[node] if node in is_output else None),
        ):
            if rows is None:
                continue
            found = np.zeros(0, np.int32) if asked is None else rows.find(asked)
            if len(found) != len(rows) or (found < 0).any():
                raise CompilationError(
                    f"the graph is of another request: the rows that are {what} of '{name}' differ"
                )
