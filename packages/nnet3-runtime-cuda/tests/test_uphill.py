"""A small update of any updatable component raises the objective as the gradient predicts."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from computations import request, single
from emulated_device.dry_run import DryRun
from nnet3_compiler import compile_computation
from nnet3_descriptors import Nnet, vectorize
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from random_components import TYPES, Drawn, random_case

UPDATABLE = [
    kind
    for kind in TYPES
    if any(random_case(kind, Random(seed)).nnet().num_parameters for seed in range(20))
]
MINIBATCHES = 14
"""More minibatches than the first ones, on which all estimates of Fisher matrices change."""

LENGTH = 1.0e-4
"""Length of a step, relative to the length of the parameters."""

TOLERANCE = 0.01
"""The relative deviation from a linear increase."""


class Climb:
    """The sum of a component's outputs times weights, as a function of its parameters."""

    def __init__(self, nnet: Nnet, computation, *, natural_gradient: bool) -> None:
        self._device_nnet = DeviceNnet(
            nnet, trainable=True, dtype=np.float64, natural_gradient=natural_gradient
        )
        self._computer = NnetComputer(self._device_nnet, computation)

    def value(self, parameters: np.ndarray, inputs: np.ndarray, weights: np.ndarray) -> float:
        """The objective."""
        self._device_nnet.parameters[:] = parameters
        return float((self._computer.forward({"input": inputs})["output"] * weights).sum())

    def direction(
        self, parameters: np.ndarray, inputs: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        """The direction of an update: the gradient, or the natural gradient."""
        self.value(parameters, inputs, weights)
        self._computer.backward({"output": weights})
        return self._device_nnet.direction.copy()


def test_the_types_that_learn() -> None:
    """The tests cover all types with parameters."""
    assert len(UPDATABLE) == 19
    assert {"Affine", "Composite", "LstmNonlinearity", "TimeHeightConvolution"} <= set(UPDATABLE)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", UPDATABLE)
def test_updates_go_uphill(kind: str, seed: int) -> None:
    """The objective rises in each minibatch, along the gradient and the natural gradient."""
    drawn, rng = Drawn.of(kind, seed, has_parameters=True), np.random.default_rng(seed)
    case, nnet, sequences = drawn.case, drawn.nnet, drawn.sequences
    plain, natural = (
        Climb(nnet, drawn.computation, natural_gradient=is_natural) for is_natural in (False, True)
    )
    parameters = vectorize(nnet).astype(np.float64)
    for _ in range(MINIBATCHES):
        inputs = rng.standard_normal((sequences * len(case.inputs), case.dim))
        weights = rng.standard_normal((sequences * len(case.outputs), nnet.node_dim("output")))
        before = plain.value(parameters, inputs, weights)
        gradient = plain.direction(parameters, inputs, weights)
        other = natural.direction(parameters, inputs, weights)

        for direction in (gradient, other):
            rate = LENGTH * np.linalg.norm(parameters) / np.linalg.norm(direction)
            expected = rate * gradient @ direction
            raised = plain.value(parameters + rate * direction, inputs, weights) - before

            assert expected > 0.0
            assert abs(raised - expected) <= TOLERANCE * expected
        parameters += rate * other


def test_plain_gradient_of_a_splice_is_one_product() -> None:
    """A device computes all taps of a narrow map without bias together, not each by itself."""
    nnet = single(
        "type=TdnnComponent input-dim=20 output-dim=8 time-offsets=-1,0,1 use-bias=false", dim=20
    )
    computation = compile_computation(nnet, request(range(-1, 41), range(40), sequences=1))
    rng = np.random.default_rng(0)
    inputs, weights = rng.standard_normal((42, 20)), rng.standard_normal((40, 8))
    spliced = np.concatenate([inputs[tap : tap + 40] for tap in range(3)], axis=1)

    climb = Climb(nnet, computation, natural_gradient=False)
    direction = climb.direction(vectorize(nnet), inputs, weights)
    np.testing.assert_allclose(direction.reshape(8, 60), weights.T @ spliced, rtol=1e-9)

    device = DryRun()
    plain = DeviceNnet(nnet, device=device, trainable=True, natural_gradient=False)
    NnetComputer(plain, computation)
    assert len(device.products) == 3  # forward, for the input, for the parameters
