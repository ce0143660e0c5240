"""Finds the chunk from which on all chunks are computed alike.

A Failover, an IfDefined or a component with optional reads leaves out rows that cannot be computed
yet. Such a row can wait for others, which wait for others again: with `Failover(Offset(b, -7),
input)`, and `b` a layer over `Offset(input, -7)`, the first term takes part at frame 14. Chunks
before that look as if they repeated. So the graphs of chunks are compared until no row is missing
any more that a chunk might read.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from nnet3_descriptors import Nnet
from nnet3_descriptors.indexes import INT32_MAX, T
from nnet3_graph import (
    ComputationGraph,
    ComputationRequest,
    IoSpecification,
    build_computation_graph,
    last_missing_time,
    longest_wait,
)
from nnet3_graph.nodes import node_rules
from numpy.typing import NDArray

from nnet3_compiler.looped.chunk_requests import moved_request

_Table = NDArray[np.int64]

_READER_T, _SOURCE_T = 2, 6
"""Columns of reads: node, n, t and x of a row, and of a row that it reads."""

_SHARED = np.iinfo(np.int64).min
"""Stands for the t of rows that all chunks read."""


@attrs.frozen(kw_only=True)
class Steadiness:
    """The chunks that are computed alike.

    Attributes:
        first: The first of them, from 0; the number of chunks that were looked at if there is none.
        reach: The number of chunks after which nothing reads a row any more.
    """

    first: int
    reach: int


def find_steadiness(nnet: Nnet, requests: Sequence[ComputationRequest], shift: int) -> Steadiness:
    """Compares the graphs of chunks, each with the chunks before it as earlier segments.

    Args:
        nnet: The network.
        requests: The requests for the first three chunks; the third is the second, shifted in time.
        shift: The number of frames from one chunk to the next.

    Raises:
        CompilationError: A chunk that must be looked at has a t beyond 32 bits.
    """
    furthest, _ = node_rules(nnet).moves
    wait = longest_wait(nnet)
    if not wait:
        return Steadiness(first=0, reach=-(-furthest // shift))
    settled = _settled_time(nnet, requests, shift, wait) + 2 * furthest
    keys: list[bytes] = []
    before: _Table = np.empty((0, 8), np.int64)
    cindexes, chunks = np.empty((0, 4), np.int64), np.empty(0, np.int64)
    reach = 0
    graph: ComputationGraph | None = None
    for number in range(-(-wait // shift) + 3):
        request = (
            requests[number] if number < 3 else moved_request(requests[2], (number - 2) * shift)
        )
        graph = build_computation_graph(nnet, request, graph)
        counts = np.diff(graph.dependency_splits)
        readers = len(cindexes) + np.repeat(np.arange(graph.num_cindexes), counts)
        cindexes = np.concatenate([cindexes, graph.cindexes])
        chunks = np.concatenate([chunks, np.full(graph.num_cindexes, number)])
        reads = np.hstack([cindexes[readers], cindexes[graph.dependencies]])
        first_t = int(reads[:, _READER_T].min(initial=INT32_MAX))
        reads[:, _READER_T] -= number * shift
        shared = np.isin(_rows(reads), _rows(before))  # rows that each chunk reads, as an i-vector
        before = reads.copy()
        reads[:, _SOURCE_T] = np.where(shared, _SHARED, reads[:, _SOURCE_T] - number * shift)
        keys.append(np.unique(reads, axis=0).tobytes())
        sources = chunks[graph.dependencies][~shared]
        reach = max(reach, number - int(sources.min(initial=number)))
        if first_t > settled and len(keys) > 2 and keys[-1] == keys[-2]:
            break
    return Steadiness(first=_first_of_period(keys), reach=reach)


def _settled_time(nnet: Nnet, requests: Sequence[ComputationRequest], shift: int, wait: int) -> int:
    """The t after which no row is missing that might be read, because the input began too late."""
    begin = min(int(io.indexes[:, T].min()) for io in requests[0].inputs)
    last = max(int(io.indexes[:, T].max()) for io in requests[2].inputs + requests[2].outputs)
    count = min(-(-2 * wait // shift) + 3, (INT32_MAX - last) // shift + 1)
    moves = shift * np.arange(count)

    def joined(ios: Sequence[Sequence[IoSpecification]]) -> list[IoSpecification]:
        """The rows of all chunks together."""
        specifications = []
        for first, second, third in zip(*ios, strict=True):
            further = np.repeat(third.indexes[None], count, axis=0)
            further[:, :, T] += moves[:, None].astype(further.dtype)
            rows = np.concatenate([first.indexes, second.indexes, further.reshape(-1, 3)])
            specifications.append(IoSpecification(name=first.name, indexes=rows))
        return specifications

    request = ComputationRequest(
        inputs=joined([each.inputs for each in requests]),
        outputs=joined([each.outputs for each in requests]),
    )
    missing = last_missing_time(nnet, request, begin + wait)
    return begin - 1 if missing is None else missing


def _rows(table: _Table) -> NDArray[np.void]:
    """One element for each row, to compare whole rows."""
    return np.ascontiguousarray(table).view(np.dtype((np.void, table.itemsize * 8))).ravel()


def _first_of_period(keys: Sequence[bytes]) -> int:
    """The first position from which on keys repeat, at least once; their number if none do."""
    for period in range(1, len(keys) // 2 + 1):
        first = len(keys) - period
        while first > 0 and keys[first - 1] == keys[first - 1 + period]:
            first -= 1
        if first <= len(keys) - 2 * period:
            return first
    return len(keys)
