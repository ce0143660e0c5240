"""Finds the chunk from which on all chunks are computed alike.

A Failover, an IfDefined or a component with optional reads leaves out rows that cannot be computed
yet. Such a row can wait for others, which wait for others again: with `Failover(Offset(b, -7),
input)`, and `b` a layer over `Offset(input, -7)`, the first term takes part at frame 14. Chunks
before that look as if they repeated. So what counts is not whether chunks look alike, but whether
rows from before the beginning would make a difference.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from nnet3_computation import ComputationRequest
from nnet3_descriptors import Nnet
from nnet3_descriptors.indexes import T
from nnet3_graph import ComputationGraph, build_computation_graph, unsettled_node
from nnet3_graph.nodes import node_rules

from nnet3_compiler.errors import CompilationError
from nnet3_compiler.looped.chunk_requests import chunk_request, moved_request


@attrs.frozen(kw_only=True)
class Steadiness:
    """The chunks that are computed alike.

    Attributes:
        first: The first of them, from 0.
        reach: The number of chunks after which nothing reads a row any more.
    """

    first: int
    reach: int

    @property
    def memory(self) -> int:
        """The number of chunks that a row may last, directly or in rows that wait for it."""
        return max(self.first, self.reach)


def find_steadiness(
    nnet: Nnet, requests: Sequence[ComputationRequest], shift: int, max_chunks: int
) -> Steadiness:
    """Builds the graphs of chunks, each with those before as earlier segments, until they settle.

    Args:
        nnet: The network.
        requests: The requests for the first three chunks; the third is the second, shifted in time.
        shift: The number of frames from one chunk to the next; a multiple of the network's modulus.
        max_chunks: The largest number of chunks to look at.

    Raises:
        CompilationError: The chunks do not settle, or one that must be looked at has a t beyond 32
            bits.
    """
    if not any(rule.has_fixed_t for rule in node_rules(nnet).rules):
        # Rows before the beginning have to exist, so that the network could read them.
        begin = min(int(io.indexes[:, T].min()) for io in requests[0].inputs)
        from_zero = begin % nnet.modulus - begin
        requests = [moved_request(each, from_zero) for each in requests]
    graph: ComputationGraph | None = None
    node: str | None = None
    reach = 0
    for number in range(max_chunks):
        request = chunk_request(requests, shift, number)
        graph = build_computation_graph(nnet, request, graph)
        ends = graph.segment_ends
        furthest = int(graph.dependencies.min(initial=ends[-1]))
        reach = max(reach, number - int(np.searchsorted(ends, furthest, "right")))
        if number > 0:
            node = unsettled_node(request, graph, shift)
            if node is None:
                return Steadiness(first=number, reach=reach)
    raise CompilationError(
        f"in {max_chunks} chunks of {shift} frames, node '{node}' does not come to compute all "
        "chunks alike: it waits for rows further back, or reads a fixed t; larger chunks may do"
    )
