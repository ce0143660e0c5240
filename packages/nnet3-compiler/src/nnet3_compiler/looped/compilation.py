"""Looped computations: chunk after chunk of an endless input, with the state carried over.

Three requests say what the first three chunks take and give; all further chunks are like the third,
shifted in time. They are compiled as one computation in several segments. Compare the matrices that
are alive after one segment and after a later one. If they are equal but for a shift in time,
everything repeats from there on, and the computation is closed to a
loop: after the later segment the matrices are handed back (SwapMatrix), and the computation goes on
at the earlier place (GotoLabel). The necessary number of segments depends on the network, so the
compiler tries more and more.

A Failover, an IfDefined or a component with optional reads leaves out rows that cannot be computed
yet. Such a row can wait for others, which wait for others again: with `Failover(Offset(b, -7),
input)`, and `b` a layer over `Offset(input, -7)`, the first term takes part at frame 14. Chunks
before that look as if they repeated. So what counts is not whether chunks look alike, but whether
rows from before the beginning would make a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import attrs
import numpy as np
from nnet3_computation import ComputationRequest
from nnet3_computation.computation import NnetComputation
from nnet3_descriptors import Nnet, indexes
from nnet3_graph import ComputationGraph, build_computation_graph, nodes, unsettled_node

from nnet3_compiler import compiler, errors
from nnet3_compiler.looped.closing import close_loop, find_repetition, with_tight_lifetimes
from nnet3_compiler.looped.requests import chunk_request, extended_requests, moved_request, shift_of
from nnet3_compiler.options import CompilerOptions


class Steadiness(NamedTuple):
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
    if not any(rule.has_fixed_t for rule in nodes.node_rules(nnet).rules):
        # Rows before the beginning have to exist, so that the network could read them.
        begin = min(int(io.indexes[:, indexes.T].min()) for io in requests[0].inputs)
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
    raise errors.CompilationError(
        f"in {max_chunks} chunks of {shift} frames, node '{node}' does not come to compute all "
        "chunks alike: it waits for rows further back, or reads a fixed t; larger chunks may do"
    )


FIRST_NUM_SEGMENTS = 5
"""The smallest number of segments that is tried."""
MAX_NUM_SEGMENTS = 200


def compile_looped(
    nnet: Nnet,
    requests: Sequence[ComputationRequest],
    options: CompilerOptions | None = None,
    *,
    optimize: Callable[[NnetComputation], NnetComputation] | None = None,
) -> NnetComputation:
    """Compiles a computation for any number of chunks.

    Args:
        nnet: The network.
        requests: The requests for the first three chunks; the third is the second, shifted in time.
            Without derivatives.
        options: See `CompilerOptions`.
        optimize: Is applied to the computation in segments, before it is closed.

    Raises:
        NotComputableError: An output can't be computed from the inputs so far.
        CompilationError: The requests have derivatives, or are not shifted against each other, or
            by a number of frames that is no multiple of the network's modulus; or nothing repeats
            before a chunk has a t beyond 32 bits.
    """
    options = options or CompilerOptions()
    with_info = attrs.evolve(options, output_debug_info=True)
    shift, steady = shift_of(requests), steadiness_of(nnet, requests)
    for num_segments in numbers_of_segments(steady):
        segments = extended_requests(requests, num_segments)
        computation = compiler.compile_segments(nnet, segments, with_info)
        loop = _loop_of(computation, shift, steady, optimize)
        if loop is not None:
            return loop if options.output_debug_info else attrs.evolve(loop, matrix_debug_info=())
    raise errors.CompilationError(
        f"in {MAX_NUM_SEGMENTS} segments of the looped computation no state was found that repeats"
    )


def _loop_of(
    computation: NnetComputation,
    shift: int,
    steady: Steadiness,
    optimize: Callable[[NnetComputation], NnetComputation] | None,
) -> NnetComputation | None:
    """Optimizes segments and closes them to a loop; None if no state is seen to repeat.

    Passes put rows of several kinds into one matrix, also rows that no segment reads before much
    later. So they can hide that a state still grows, and the state repeats before they run, too.
    """
    begin, unseen = max(steady.first - 1, 0), steady.memory
    tight = with_tight_lifetimes(computation)
    if optimize is None:
        return close_loop(tight, shift, begin=begin, unseen=unseen)
    plain = find_repetition(tight, shift, begin=begin, unseen=unseen)
    if plain is None:
        return None
    tight = with_tight_lifetimes(optimize(computation))
    return close_loop(tight, shift, begin=plain.first, unseen=unseen, unit=plain.length)


def steadiness_of(nnet: Nnet, requests: Sequence[ComputationRequest]) -> Steadiness:
    """Returns from which segment on all are computed alike, and how far back they read.

    Raises:
        CompilationError: The requests are not shifted against each other, or by a number of frames
            that is no multiple of the network's modulus; or a node reads so far away, directly or
            through others, that no state would be seen to repeat.
    """
    shift = shift_of(requests)
    if shift % nnet.modulus:
        raise errors.CompilationError(
            f"the modulus of the network is {nnet.modulus}, so chunks of {shift} frames are not "
            f"computed alike: expected a multiple of {nnet.modulus} (see looped_chunk_size)"
        )
    furthest, _ = nodes.node_rules(nnet).moves
    reach = -(-furthest // shift)
    if reach + 3 > MAX_NUM_SEGMENTS:
        raise _too_far(f"a node reads {furthest} frames away", reach, shift)
    steady = find_steadiness(nnet, requests, shift, MAX_NUM_SEGMENTS)
    if _first_number(steady) > MAX_NUM_SEGMENTS:
        frames = steady.memory * shift
        raise _too_far(f"a node waits for others for {frames} frames", steady.memory, shift)
    return steady


def _too_far(what: str, chunks: int, shift: int) -> errors.CompilationError:
    return errors.CompilationError(
        f"{what}, which is {chunks} chunks of {shift} frames: in {MAX_NUM_SEGMENTS} chunks its "
        "state would not be seen to repeat; larger chunks would do"
    )


def numbers_of_segments(steady: Steadiness) -> Iterator[int]:
    """Yields the numbers of segments to try, one after the other."""
    number = _first_number(steady)
    while number < MAX_NUM_SEGMENTS:
        yield number
        number *= 2
    yield MAX_NUM_SEGMENTS


def _first_number(steady: Steadiness) -> int:
    """Returns the first number of segments to try.

    Before the segments that repeat, the state fills. After them come as many as their state may
    last, and then those that nothing reads, which passes may therefore change.
    """
    return max(2 * steady.memory + steady.reach + 2, FIRST_NUM_SEGMENTS)
