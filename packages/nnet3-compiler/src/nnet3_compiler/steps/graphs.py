"""The computation graphs of all segments of a computation, seen as one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import attrs
import numpy as np
from nnet3_graph import ComputationGraph

from nnet3_compiler.arrays import IntArray


@attrs.frozen(kw_only=True, eq=False)
class Graphs:
    """The pruned graphs of the segments; cindex ids count through all of them.

    Attributes:
        segments: The graph of each segment; each but the first reads from the one before.
    """

    segments: Sequence[ComputationGraph]

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

    def computed(self, segment: int, node: int) -> IntArray | slice:
        """Returns the cindex ids of the rows of a node that the user does not give.

        Returns:
            A slice of ids, or an array of them, ascending.
        """
        graph = self.segments[segment]
        ids = graph.node_range(node)
        if not graph.given_sets[node].bits:
            return ids
        computed: IntArray = np.flatnonzero(~graph.is_given(node)).astype(np.int32) + ids.start
        return computed
