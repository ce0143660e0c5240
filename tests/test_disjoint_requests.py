"""Requests whose indexes differ in x: each alone, both in one request, both as segments."""

from random import Random

import attrs
import numpy as np
import pytest
from example_generator import draw_request, is_computable, random_arrays
from judged_seeds import differences
from network_generator import write_network
from nnet3_compiler import compile_segments
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet, parse_config, set_test_mode
from nnet3_optimizer import optimize
from nnet3_runtime_cuda import NnetComputer
from other_requests import joined
from reference_programs import optimized

X = 1000
"""The distance: a Distribute component that gives a row at x reads at x / 2."""

Arrays = dict[str, np.ndarray]


def moved(request: ComputationRequest, x: int) -> ComputationRequest:
    """A request for outputs alone, with all indexes moved in x."""

    def with_x(io: IoSpecification) -> IoSpecification:
        return attrs.evolve(io, indexes=io.indexes + np.array([0, 0, x], np.int32))

    return ComputationRequest(
        inputs=tuple(map(with_x, request.inputs)), outputs=tuple(map(with_x, request.outputs))
    )


def case_of_seed(seed: int) -> tuple[Nnet, ComputationRequest, ComputationRequest]:
    """A network in test mode (else batch-norm looks at all rows), and two requests."""
    rng = Random(seed)
    while True:
        writer, _ = write_network(rng)
        nnet = parse_config(writer.text(), rng=np.random.default_rng(rng.getrandbits(32)))
        nnet = set_test_mode(nnet)
        first, second = (draw_request(rng, nnet, derivatives=False) for _ in range(2))
        first, second = moved(first, 0), moved(second, X)
        have_same_inputs = len(first.inputs) == len(second.inputs) == len(nnet.input_nodes)
        if have_same_inputs and all(is_computable(nnet, each) for each in (first, second)):
            return nnet, first, second


def run(nnet: Nnet, request: ComputationRequest, inputs: Arrays) -> Arrays:
    """The outputs."""
    return NnetComputer(nnet, optimized(nnet, request)).forward(inputs)


@pytest.mark.parametrize("seed", range(25))
def test_disjoint_requests(seed: int) -> None:
    """Each way gives the same rows."""
    nnet, first, second = case_of_seed(seed)
    given = [random_arrays(nnet, each.inputs, seed) for each in (first, second)]
    alone = [run(nnet, each, arrays) for each, arrays in zip((first, second), given, strict=True)]
    both = {name: np.concatenate([arrays[name] for arrays in given]) for name in given[0]}

    at_once = run(nnet, joined([first, second]), both)
    segments = compile_segments(nnet, [first, second])

    expected = {name: np.concatenate([arrays[name] for arrays in alone]) for name in alone[0]}
    assert not differences(at_once, expected)
    for computation in (segments, optimize(nnet, segments)):
        computer = NnetComputer(nnet, computation)
        for arrays, outputs in zip(given, alone, strict=True):
            assert not differences(computer.forward(arrays), outputs)
