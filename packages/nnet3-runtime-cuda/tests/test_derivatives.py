"""Input derivatives and gradients against finite differences in double precision."""

from collections.abc import Callable

import numpy as np
import pytest
from computations import DIFFERENTIABLE, Case
from nnet3_runtime_cuda import DeviceNnet, NnetComputer

STEP = 1.0e-6
TOLERANCE = 1.0e-6


class Objective:
    """The sum of the outputs of a component, each times a random weight, as a function."""

    def __init__(self, case: Case, seed: int) -> None:
        self.nnet = case.nnet(seed)
        self.device_nnet = DeviceNnet(self.nnet, trainable=True, dtype=np.float64)
        self.computer = NnetComputer(self.device_nnet, case.compile(self.nnet))
        rng = np.random.default_rng(seed + 100)
        rows = 2 * len(case.inputs)
        # Away from 0, where some functions have kinks.
        self.inputs = rng.uniform(0.1, 1.0, (rows, case.dim)) * rng.choice(
            (-1, 1), (rows, case.dim)
        )
        self.weights = rng.standard_normal(self.forward(self.inputs).shape)

    def forward(self, inputs: np.ndarray) -> np.ndarray:
        """The outputs."""
        return self.computer.forward({"input": inputs})["output"]

    def value(self, inputs: np.ndarray) -> float:
        """The objective."""
        return float((self.forward(inputs) * self.weights).sum())

    def derivatives(self) -> tuple[np.ndarray, np.ndarray]:
        """The derivatives with respect to inputs and parameters."""
        self.forward(self.inputs)
        inputs = self.computer.backward({"output": self.weights})["input"]
        return inputs, self.device_nnet.direction.copy()


def assert_slope(f: Callable[[float], float], expected: float, scale: float) -> None:
    """Compares a derivative with a central difference."""
    slope = (f(STEP) - f(-STEP)) / (2 * STEP)
    assert abs(slope - expected) <= TOLERANCE * max(scale, 1.0), (slope, expected)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives(name: str, seed: int) -> None:
    """Both derivatives are those of the objective, along random directions."""
    objective = Objective(DIFFERENTIABLE[name], seed)
    d_inputs, d_parameters = objective.derivatives()
    inputs, parameters = objective.inputs, objective.device_nnet.parameters
    rng = np.random.default_rng(seed + 200)

    for _ in range(3):
        direction = rng.standard_normal(inputs.shape)
        if "dropout" in name:
            # Masks are constants to the component: the derivative with respect to them is 0.
            direction[:, -3:] = 0.0
        assert_slope(
            lambda step, d=direction: objective.value(inputs + step * d),
            float((d_inputs * direction).sum()),
            np.abs(d_inputs * direction).sum(),
        )
    original = parameters.copy()
    for _ in range(3):
        direction = rng.standard_normal(parameters.shape)

        def moved(step: float, direction: np.ndarray = direction) -> float:
            parameters[:] = original + step * direction
            return objective.value(inputs)

        assert_slope(moved, float(d_parameters @ direction), np.abs(d_parameters * direction).sum())
        parameters[:] = original


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_replaces_that_of_the_last_pass(name: str) -> None:
    """An earlier gradient is overwritten by the next backward pass."""
    objective = Objective(DIFFERENTIABLE[name], 0)
    _, expected = objective.derivatives()
    objective.device_nnet.direction.fill(np.nan)

    _, actual = objective.derivatives()

    np.testing.assert_array_equal(actual, expected)
