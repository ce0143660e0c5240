"""A recurrence in two halves: the final state of the first half is given to the second."""

from random import Random

import numpy as np
import pytest
from example_generator import is_computable, random_arrays
from network_generator import LAYERS, write_network
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet, parse_config
from nnet3_graph import ComputationGraph, build_computation_graph
from nnet3_runtime_cuda import NnetComputer
from optimizer_trials import TOLERANCE
from reference_programs import optimized
from small_networks import RECURRENT as RECURRENCE

RECURRENT = ("recurrence", "lstm", "clockwork", "projected-lstm")
HALF, END = 5, 10
SEQUENCES = 2


def recurrent_network(seed: int) -> tuple[Nnet, dict[str, np.ndarray], ComputationRequest]:
    """A network whose outputs depend on its state, and a request for all frames.

    It has no batch-norm, which in training normalizes over all frames of a run. For each node with
    a state there is an output, "state-of-" and the node's name.

    Returns:
        The network, the indexes of each state before the second half, and the request.
    """
    rng = Random(seed)
    while True:
        kinds = [rng.choice(RECURRENT), *rng.choices(sorted(LAYERS), k=rng.randint(0, 2))]
        rng.shuffle(kinds)
        writer, _ = write_network(rng, kinds)
        states = [f"output-node name=state-of-{name} input={name}" for name in writer.states]
        nnet = parse_config("\n".join([writer.text(), *states]), rng=np.random.default_rng(seed))
        request = ComputationRequest(
            inputs=[
                IoSpecification.from_range(node.name, -8, END + 8, SEQUENCES)
                for node in nnet.input_nodes
            ],
            outputs=[
                IoSpecification.from_range(node.name, 0, END, SEQUENCES)
                for node in nnet.output_nodes
                if not node.name.startswith("state-of-")
            ],
        )
        if "BatchNorm" not in writer.text() and is_computable(nnet, request):
            graph = build_computation_graph(nnet, request)
            past = {name: rows for name in writer.states if len(rows := past_of(name, nnet, graph))}
            if past:
                return nnet, past, request


def past_of(name: str, nnet: Nnet, graph: ComputationGraph) -> np.ndarray:
    """The indexes of a node before the second half, (rows, 3)."""
    rows = graph.cindexes[graph.node_range(nnet.node_index(name)), 1:]
    return rows[rows[:, 1] < HALF]


@pytest.mark.parametrize("seed", range(60))
def test_two_halves_are_the_whole(seed: int) -> None:
    """The outputs of the second half are those of a run over all frames."""
    nnet, past, whole = recurrent_network(seed)
    inputs = random_arrays(nnet, whole.inputs, seed)
    expected = NnetComputer(nnet, optimized(nnet, whole)).forward(inputs)
    first = ComputationRequest(
        inputs=whole.inputs,
        outputs=[
            IoSpecification(name=f"state-of-{name}", indexes=rows) for name, rows in past.items()
        ]
        + [IoSpecification.from_range(io.name, 0, HALF, SEQUENCES) for io in whole.outputs],
    )
    first_half = NnetComputer(nnet, optimized(nnet, first)).forward(inputs)
    second = ComputationRequest(
        inputs=[
            *whole.inputs,
            *(IoSpecification(name=name, indexes=rows) for name, rows in past.items()),
        ],
        outputs=[IoSpecification.from_range(io.name, HALF, END, SEQUENCES) for io in whole.outputs],
    )
    state = {name: first_half[f"state-of-{name}"] for name in past}
    second_half = NnetComputer(nnet, optimized(nnet, second)).forward(inputs | state)

    for io in whole.outputs:
        halves = [half[io.name].reshape(SEQUENCES, HALF, -1) for half in (first_half, second_half)]
        found = np.concatenate(halves, axis=1).reshape(expected[io.name].shape)
        scale = np.abs(expected[io.name]).max()
        np.testing.assert_allclose(found / scale, expected[io.name] / scale, atol=TOLERANCE, rtol=0)


def test_the_second_half_computes_no_earlier_state() -> None:
    """Given its state, a recurrence runs over the frames of the second half only."""
    nnet = parse_config(RECURRENCE)
    state = IoSpecification.from_range("tanh", HALF - 1, HALF)
    request = ComputationRequest(
        inputs=[IoSpecification.from_range("input", HALF, END), state],
        outputs=[IoSpecification.from_range("output", HALF, END)],
    )

    graph = build_computation_graph(nnet, request)

    rows = graph.cindexes[graph.node_range(nnet.node_index("tanh"))]
    assert rows[:, 2].tolist() == list(range(HALF - 1, END))
