"""Chunks that hand on their state, run one after the other by the reference runtime."""

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from nnet3_compiler import chunks_with_state, compile_computation
from nnet3_compiler.looped import extended_requests
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet
from nnet3_runtime_reference import ReferenceComputer

Arrays = Mapping[str, np.ndarray]


def chunks_in_turn(
    nnet: Nnet, requests: Sequence[ComputationRequest], inputs: Sequence[Arrays]
) -> list[dict[str, np.ndarray]]:
    """The outputs of each chunk.

    Args:
        nnet: The network.
        requests: The requests for the first three chunks.
        inputs: The inputs of each chunk: rows as in its request.
    """
    chunks = chunks_with_state(nnet, [_of_first_sequence(request) for request in requests])
    num_sequences = int(requests[0].inputs[0].indexes[:, 0].max()) + 1
    came: dict[tuple[str, int, int], np.ndarray] = {}
    state: dict[str, np.ndarray] = {}
    rounds = []
    whole = extended_requests(requests, max(len(inputs), 3))
    for number, values in enumerate(inputs):
        for io in whole[number].inputs:
            for (n, t, _), row in zip(io.indexes.tolist(), values[io.name], strict=True):
                came[io.name, n, t] = row
        chunk, start = chunks.chunk(number), number * chunks.shift
        request = chunk.for_sequences(num_sequences)
        computer = ReferenceComputer(chunks.nnet, compile_computation(chunks.nnet, request))
        given = state | {
            io.name: np.array([came[io.name, n, t + start] for n, t, _ in io.indexes.tolist()])
            for io in request.inputs
            if io.name not in state
        }
        outputs = computer.forward(given)
        state = {node: outputs.pop(name) for node, name in chunk.state_outputs}
        rounds.append(outputs)
    return rounds


def _of_first_sequence(request: ComputationRequest) -> ComputationRequest:
    """The rows n = 0 of a request."""

    def rows(io: IoSpecification) -> IoSpecification:
        return attrs.evolve(io, indexes=io.indexes[io.indexes[:, 0] == 0])

    return attrs.evolve(
        request,
        inputs=tuple(map(rows, request.inputs)),
        outputs=tuple(map(rows, request.outputs)),
        store_component_stats=False,
    )
