"""The requests of the chunks of a looped computation, and what it changes in the network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import attrs
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import ComponentInputNode, NetworkError, Nnet, OutputNode, descriptors
from nnet3_descriptors.indexes import T, as_rows, moved_indexes
from nnet3_descriptors.values import is_integer
from nnet3_graph import ContextError, NotComputableError, compute_context, fixed_frame

from nnet3_compiler.errors import CompilationError


def shift_of(requests: Sequence[ComputationRequest]) -> int:
    """Returns the number of frames from one chunk to the next.

    Raises:
        CompilationError: There are not three requests, or the third is not the second one, shifted.
    """
    return _shift(*extended_requests(requests, 3)[1:])


def extended_requests(
    requests: Sequence[ComputationRequest], count: int
) -> tuple[ComputationRequest, ...]:
    """Returns `count` requests: the three given ones, and further ones like the third.

    Raises:
        CompilationError: The third request is not the second one, shifted in time, or a further
            one has a t beyond 32 bits.
    """
    _check_three(requests)
    second, third = requests[1:]
    shift = _shift(second, third)
    if shift <= 0 or moved_request(second, shift) != third:
        raise CompilationError(
            "the third request of a looped computation must be the second one, shifted in time"
        )
    return tuple(chunk_request(requests, shift, number) for number in range(count))


def chunk_request(
    requests: Sequence[ComputationRequest], shift: int, number: int
) -> ComputationRequest:
    """Returns the request of a chunk, from 0, without checking the first three.

    Raises:
        CompilationError: It has a t beyond 32 bits.
    """
    return requests[number] if number < 3 else moved_request(requests[2], (number - 2) * shift)


def _check_three(requests: object) -> None:
    found = len(requests) if isinstance(requests, Sequence) else type(requests).__name__
    if found != 3:
        raise CompilationError(f"a looped computation needs three requests (got {found})")


def _shift(second: ComputationRequest, third: ComputationRequest) -> int:
    """Returns how many frames the third chunk comes after the second."""
    return int(third.inputs[0].indexes[0, T]) - int(second.inputs[0].indexes[0, T])


def moved_request(request: ComputationRequest, shift: int) -> ComputationRequest:
    """Returns a request, that many frames later.

    Raises:
        CompilationError: It has a t beyond 32 bits.
    """

    def moved(io: IoSpecification) -> IoSpecification:
        reader = f"'{io.name}' of a further chunk of the looped computation"
        try:
            return attrs.evolve(io, indexes=as_rows(moved_indexes(io.indexes, shift, 0), reader))
        except NetworkError as error:
            raise CompilationError(str(error)) from error

    return ComputationRequest(
        inputs=tuple(map(moved, request.inputs)),
        outputs=tuple(map(moved, request.outputs)),
        need_model_derivative=request.need_model_derivative,
        store_component_stats=request.store_component_stats,
    )


INPUT, IVECTOR, OUTPUT = "input", "ivector", "output"
"""The nodes that speech networks have by convention."""

Made = TypeVar("Made")


def looped_chunk_size(nnet: Nnet, advised: int, frame_subsampling_factor: int = 1) -> int:
    """Returns the smallest chunk size, in frames, from `advised` on that fits the network.

    It is a multiple of the network's modulus and of the factor by which outputs are subsampled.

    Raises:
        CompilationError: An argument is not positive.
    """
    advised = _positive("the chunk size", advised)
    factor = _positive("the frame subsampling factor", frame_subsampling_factor)
    unit = math.lcm(nnet.modulus, factor)
    return -(-advised // unit) * unit


def check_no_fixed_frame(nnet: Nnet) -> None:
    """Checks that a network can be computed in chunks of an endless input.

    Raises:
        CompilationError: The output reads features at a fixed time.
    """
    fixed = fixed_frame(nnet)
    if fixed is not None:
        raise CompilationError(f"{fixed}: such a network computes whole utterances only")


def with_ivector_period(nnet: Nnet, period: int) -> Nnet:
    """Returns the network with a new i-vector every `period` frames, instead of one for all.

    ReplaceIndex(node, t, 0) becomes Round(node, period), in all descriptors and for every node.

    Raises:
        CompilationError: The period is not positive, or the output reads features at a fixed time.
        NetworkError: The period is beyond 32 bits.
    """
    period = _positive("the i-vector period", period)
    check_no_fixed_frame(nnet)

    def replaced(leaf: descriptors.ForwardingDescriptor) -> descriptors.ForwardingDescriptor:
        if isinstance(leaf, descriptors.ReplaceIndex) and (leaf.variable, leaf.value) == ("t", 0):
            return descriptors.Round(replaced(leaf.source), period)
        return leaf.with_sources(tuple(map(replaced, leaf.sources)))

    def with_period(part: descriptors.SumDescriptor) -> descriptors.SumDescriptor:
        return part.map_leaves(replaced)

    return attrs.evolve(
        nnet,
        nodes=tuple(
            attrs.evolve(
                node,
                descriptor=descriptors.Descriptor(tuple(map(with_period, node.descriptor.parts))),
            )
            if isinstance(node, ComponentInputNode | OutputNode)
            else node
            for node in nnet.nodes
        ),
    )


def stream_network(
    nnet: Nnet,
    advised: int,
    *,
    frame_subsampling_factor: int = 1,
    ivector_period: int | None = None,
) -> tuple[Nnet, int]:
    """Returns the network of a stream, with a new i-vector every period, and its chunk size.

    The chunk size is the smallest one from `advised` on that fits this network, which may repeat
    its reads later than the network as it is.

    Args:
        nnet: The network, with one i-vector for all frames.
        advised: The least number of frames of a chunk.
        frame_subsampling_factor: Frames of the input for each frame of the output.
        ivector_period: Frames for each i-vector; None for one i-vector in each chunk.

    Raises:
        CompilationError: An argument is not positive, or the output reads features at a fixed time.
    """
    unit = math.lcm(frame_subsampling_factor, ivector_period or 1)
    size, looped = 0, nnet
    while not size or size % looped.modulus:
        size = looped_chunk_size(looped, advised, unit)
        looped = with_ivector_period(nnet, ivector_period or size)
    return looped, size


def with_least_context(nnet: Nnet, looped: Nnet, make: Callable[[tuple[int, int]], Made]) -> Made:
    """Returns what is made of the chunks of a stream with the least context that they need.

    That is the context of the network, as in Kaldi. Where i-vectors of other times are read, the
    chunks may need the frames around these times, too.

    Args:
        nnet: The network.
        looped: The network of its stream; see `stream_network`.
        make: Compiles the chunks that have a context: see `looped_requests`.

    Raises:
        NotComputableError: The chunks cannot be computed with either.
    """
    try:
        return make(compute_context(nnet))
    except NotComputableError as error:
        try:
            context = compute_context(looped)
        except ContextError:
            raise error from None
        return make(context)


def looped_requests(
    nnet: Nnet,
    chunk_size: int,
    *,
    frame_subsampling_factor: int = 1,
    ivector_period: int | None = None,
    extra_left_context: int = 0,
    extra_right_context: int = 0,
    num_sequences: int = 1,
    context: tuple[int, int] | None = None,
) -> tuple[ComputationRequest, ComputationRequest, ComputationRequest]:
    """Returns the requests of the first three chunks of a looped computation.

    Chunk k gives the output at t = k * chunk_size up to (k + 1) * chunk_size. The first chunk takes
    the context on both sides, each later one `chunk_size` frames more.

    Args:
        nnet: The network; its nodes have the conventional names "input", "ivector" and "output".
        chunk_size: Frames in a chunk; see `looped_chunk_size`.
        frame_subsampling_factor: Frames of the input for each frame of the output.
        ivector_period: Frames for each i-vector, if the network takes one; see
            `with_ivector_period`. By default one for each chunk.
        extra_left_context: Frames before the first chunk beyond the left context of the network.
        extra_right_context: Frames after each chunk beyond its right context.
        num_sequences: Number of sequences, n = 0, 1, ...
        context: Frames before and after an output frame that the chunks take; by default
            `compute_context(nnet)`. Give that of the network before `with_ivector_period`, as in
            Kaldi: with it, a network may seem to need more frames where it needs i-vectors.

    Raises:
        CompilationError: An argument is out of range, or the chunk size is not a multiple of
            the modulus and the subsampling factor.
        ContextError: The nodes do not have these names.
    """
    chunk_size = _positive("the chunk size", chunk_size)
    num_sequences = _positive("num_sequences", num_sequences)
    period = _positive(
        "the i-vector period", chunk_size if ivector_period is None else ivector_period
    )
    frame_subsampling_factor = _positive("the frame subsampling factor", frame_subsampling_factor)
    units = (
        ("the frame subsampling factor", frame_subsampling_factor),
        ("the i-vector period", period),
        ("the modulus of the network", nnet.modulus),
    )
    for name, unit in units:
        if chunk_size % unit:
            raise CompilationError(
                f"the chunk size must be a multiple of {name}, {unit} (got {chunk_size})"
            )
    extra = (extra_left_context, extra_right_context)
    if not all(map(is_integer, extra)):
        kinds = " and ".join(type(frames).__name__ for frames in extra)
        raise CompilationError(f"the extra context must be two integers (got {kinds})")
    extra_left_context, extra_right_context = map(int, extra)  # NumPy's would wrap around
    if extra_left_context < 0 or extra_right_context < 0:
        raise CompilationError(
            f"the extra context must not be negative (got {extra_left_context} to the left and "
            f"{extra_right_context} to the right)"
        )
    left_context, right_context = compute_context(nnet) if context is None else context
    begin = -(left_context + extra_left_context)
    ivector_begin = begin - begin % period
    has_ivector = any(node.name == IVECTOR for node in nnet.input_nodes)
    requests = []
    for output_begin in range(0, 3 * chunk_size, chunk_size):
        output_end = output_begin + chunk_size
        end = output_end + right_context + extra_right_context
        inputs = [IoSpecification.from_range(INPUT, begin, end, num_sequences)]
        ivector_times = range(ivector_begin, end, period)
        if has_ivector and ivector_times:
            ivector = IoSpecification.from_range(
                IVECTOR, ivector_begin, end, num_sequences, t_step=period
            )
            inputs.append(ivector)
        output = IoSpecification.from_range(
            OUTPUT, output_begin, output_end, num_sequences, t_step=frame_subsampling_factor
        )
        requests.append(ComputationRequest(inputs=inputs, outputs=[output]))
        begin, ivector_begin = end, ivector_begin + len(ivector_times) * period
    first, second, third = requests
    return first, second, third


def _positive(name: str, value: int) -> int:
    """Returns a number as an int, whose sums and products are exact."""
    if not is_integer(value) or value < 1:
        raise CompilationError(f"{name} must be a positive integer (got {value!r})")
    return int(value)
