"""The three requests of a looped computation, and what has to be changed in a network for it."""

from __future__ import annotations

import math

import attrs
import numpy as np
from nnet3_descriptors import ComponentInputNode, Nnet, OutputNode
from nnet3_descriptors.descriptors import (
    Descriptor,
    ForwardingDescriptor,
    ReplaceIndex,
    Round,
    SumDescriptor,
)
from nnet3_graph import ComputationRequest, IoSpecification, compute_context

from nnet3_compiler.errors import CompilationError

INPUT, IVECTOR, OUTPUT = "input", "ivector", "output"
"""The nodes that speech networks have by convention."""


def looped_chunk_size(nnet: Nnet, advised: int, frame_subsampling_factor: int = 1) -> int:
    """Returns the smallest chunk size, in frames, from `advised` on that fits the network.

    It is a multiple of the network's modulus and of the factor by which outputs are subsampled.
    """
    unit = math.lcm(nnet.modulus, frame_subsampling_factor)
    return -(-advised // unit) * unit


def with_ivector_period(nnet: Nnet, period: int) -> Nnet:
    """Returns the network with a new i-vector every `period` frames, instead of one for all.

    ReplaceIndex(ivector, t, 0) becomes Round(ivector, period), in all descriptors and for all nodes
    that are used so.
    """

    def replaced(leaf: ForwardingDescriptor) -> ForwardingDescriptor:
        if isinstance(leaf, ReplaceIndex) and (leaf.variable, leaf.value) == ("t", 0):
            return Round(replaced(leaf.source), period)
        return leaf.with_sources(tuple(map(replaced, leaf.sources)))

    def with_period(part: SumDescriptor) -> SumDescriptor:
        return part.map_leaves(replaced)

    return attrs.evolve(
        nnet,
        nodes=tuple(
            attrs.evolve(
                node, descriptor=Descriptor(tuple(map(with_period, node.descriptor.parts)))
            )
            if isinstance(node, ComponentInputNode | OutputNode)
            else node
            for node in nnet.nodes
        ),
    )


def looped_requests(
    nnet: Nnet,
    chunk_size: int,
    *,
    frame_subsampling_factor: int = 1,
    ivector_period: int | None = None,
    extra_left_context: int = 0,
    extra_right_context: int = 0,
    num_sequences: int = 1,
) -> tuple[ComputationRequest, ComputationRequest, ComputationRequest]:
    """Returns what the first three chunks of a looped computation are given and asked for.

    Chunk k is asked for the output at t = k * chunk_size up to (k + 1) * chunk_size. The first one
    is given the context on both sides, each later one `chunk_size` frames more.

    Args:
        nnet: The network; its nodes have the conventional names "input", "ivector" and "output".
        chunk_size: Frames in a chunk; see `looped_chunk_size`.
        frame_subsampling_factor: The output is wanted every so many frames.
        ivector_period: An i-vector is given every so many frames, if the network has one; see
            `with_ivector_period`. By default once a chunk.
        extra_left_context: Frames before the first chunk beyond the left context of the network.
        extra_right_context: Frames after each chunk beyond its right context.
        num_sequences: Number of sequences, n = 0, 1, ...

    Raises:
        CompilationError: The chunk size is no multiple of what it has to be.
    """
    period = ivector_period or chunk_size
    for name, unit in (
        ("the frame subsampling factor", frame_subsampling_factor),
        ("the modulus of the network", nnet.modulus),
        ("the i-vector period", period),
    ):
        if chunk_size <= 0 or chunk_size % unit:
            raise CompilationError(
                f"the chunk size must be a multiple of {name}, {unit} (got {chunk_size})"
            )
    left_context, right_context = compute_context(nnet)
    begins = [
        -(left_context + extra_left_context),
        *(chunk_size * number + right_context + extra_right_context for number in (1, 2, 3)),
    ]
    has_ivector = any(node.name == IVECTOR for node in nnet.input_nodes)
    given: set[int] = set()
    requests = []
    for number in range(3):
        times = range(begins[number], begins[number + 1])
        inputs = [_io(INPUT, times, num_sequences)]
        ivector_times = sorted({t - t % period for t in times} - given) if has_ivector else []
        given.update(ivector_times)
        if ivector_times:
            inputs.append(_io(IVECTOR, ivector_times, num_sequences))
        output_times = range(
            number * chunk_size, (number + 1) * chunk_size, frame_subsampling_factor
        )
        outputs = (_io(OUTPUT, output_times, num_sequences),)
        requests.append(ComputationRequest(inputs=tuple(inputs), outputs=outputs))
    first, second, third = requests
    return first, second, third


def _io(name: str, times: range | list[int], num_sequences: int) -> IoSpecification:
    """Returns the rows of all sequences at these times; those of one sequence are together."""
    indexes = np.zeros((num_sequences, len(times), 3), np.int32)
    indexes[..., 0] = np.arange(num_sequences)[:, None]
    indexes[..., 1] = times
    return IoSpecification(name=name, indexes=indexes.reshape(-1, 3))
