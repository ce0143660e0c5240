"""Every component type with random configurations, compared with finite differences in float64."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from computations import request
from nnet3_compiler import compile_computation
from nnet3_descriptors.components import ComponentProperties, component_types
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from random_components import TYPES, Drawn, random_case

STEP = 1.0e-6
TOLERANCE = 1.0e-6
CONFIGURATIONS = range(10)


class Objective:
    """The sum of the outputs of a random component times random weights, as a function.

    Attributes:
        inputs: The point of differentiation.
        is_constant: Columns of the input that the backward pass treats as constants.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self._drawn, self._seed = Drawn.of(kind, seed), seed
        rng, case = np.random.default_rng(seed), self._drawn.case
        component = self._drawn.nnet.component("c")
        self._is_random = bool(component.properties & ComponentProperties.RANDOM)
        self._bind()
        shape = self._drawn.sequences * len(case.inputs), case.dim
        # Away from 0, where some functions have kinks.
        self.inputs = rng.uniform(0.1, 1.0, shape) * rng.choice((-1, 1), shape)
        self.is_constant = np.zeros(case.dim, dtype=bool)
        if kind == "StatisticsPooling":
            # Counts are constants; squares must give a positive variance.
            self.inputs[:, 0] = rng.integers(1, 4, shape[0])
            self.inputs[:, 1 + case.dim // 2 :] += 20.0
            self.is_constant[0] = True
        if kind == "LstmNonlinearity" and component.use_dropout:
            self.is_constant[-3:] = True  # masks
        self._weights = rng.standard_normal(self._forward(self.inputs).shape)

    def _bind(self) -> None:
        """Binds the component anew, so that masks are those of the first run."""
        self._device_nnet = DeviceNnet(
            self._drawn.nnet, trainable=True, dtype=np.float64, seed=self._seed
        )
        self._computer = NnetComputer(self._device_nnet, self._drawn.computation)

    @property
    def parameters(self) -> np.ndarray:
        """(num_parameters,), a view."""
        return self._device_nnet.parameters

    def _forward(self, inputs: np.ndarray) -> np.ndarray:
        if self._is_random:
            self._bind()
        return self._computer.forward({"input": inputs})["output"]

    def value(self, inputs: np.ndarray) -> float:
        """The objective."""
        return float((self._forward(inputs) * self._weights).sum())

    def derivatives(self) -> tuple[np.ndarray, np.ndarray]:
        """The derivatives with respect to inputs and parameters."""
        self._forward(self.inputs)
        self._device_nnet.direction.fill(np.nan)  # what an earlier pass left does not matter
        d_inputs = self._computer.backward({"output": self._weights})["input"]
        return d_inputs, self._device_nnet.direction.copy()


def assert_slope(f: Callable[[float], float], terms: np.ndarray) -> None:
    """Compares a central difference with the derivative, which is the sum of these terms."""
    slope = (f(STEP) - f(-STEP)) / (2 * STEP)
    assert abs(slope - terms.sum()) <= TOLERANCE * max(np.abs(terms).sum(), 1.0)


def test_no_type_is_missing() -> None:
    """The tests below are for all component types."""
    assert {f"{kind}Component" for kind in TYPES} == set(component_types())


@pytest.mark.parametrize("seed", CONFIGURATIONS)
@pytest.mark.parametrize("kind", TYPES)
def test_derivatives(kind: str, seed: int) -> None:
    """Both derivatives are those of the objective, along random directions."""
    objective = Objective(kind, seed)
    d_inputs, gradient = objective.derivatives()
    inputs, rng = objective.inputs, np.random.default_rng(seed + 1)

    for _ in range(2):
        direction = rng.standard_normal(inputs.shape)
        direction[:, objective.is_constant] = 0.0
        assert_slope(
            lambda step, d=direction: objective.value(inputs + step * d), d_inputs * direction
        )
    original = objective.parameters.copy()
    for _ in range(2):
        direction = rng.standard_normal(original.shape)

        def moved(step: float, direction: np.ndarray = direction) -> float:
            objective.parameters[:] = original + step * direction
            return objective.value(inputs)

        assert_slope(moved, gradient * direction)
        objective.parameters[:] = original


def test_small_groups_have_small_derivatives() -> None:
    """If squares underflow, the derivative of a norm is no larger than for a longer row."""
    case = random_case("Pnorm", Random(0))
    nnet = case.nnet()
    computer = NnetComputer(nnet, compile_computation(nnet, request(case.inputs, case.outputs)))
    for size in (1e-18, 1e-20, 1e-22, 1e-24, 1e-30, 1e-40, 0.0):
        inputs = np.full((2 * len(case.inputs), case.dim), size, dtype=np.float32)
        outputs = computer.forward({"input": inputs})["output"]
        derivatives = computer.backward({"output": np.ones_like(outputs)})["input"]
        assert (np.abs(derivatives) <= 1.0).all()
