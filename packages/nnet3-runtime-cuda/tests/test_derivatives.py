"""Derivatives against finite differences in double precision; those of several steps at once."""

from collections.abc import Callable

import numpy as np
import pytest
from computations import DIFFERENTIABLE, Case
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.lowering import recurrences
from nnet3_runtime_cuda.lowering.plan import plan_with
from stated_capabilities import Stated
from test_known_inputs import FRAMES, SEQUENCES, distinct, network, program

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


@pytest.mark.parametrize("delay", [-1, 1, -3])
def test_steps_of_a_recurrence(delay: int) -> None:
    """All steps leave the derivative of the layer below to large products."""
    nnet = network(delay)
    gates = nnet.component_index("gates")

    products = distinct(
        plan_with(nnet, program(nnet, derivatives=True), Stated(split=[gates])).late
    )

    steps = [(product.rows(step), step) for product in products for step in product.steps]
    assert sum(rows.stop - rows.start for rows, _ in steps) == FRAMES * SEQUENCES
    assert {step.columns for _, step in steps} == {6}


@pytest.mark.parametrize("delay", [-1, 1, -3])
@pytest.mark.parametrize("rows_at_once", [4, 10, 128])
def test_derivatives_are_the_same(
    delay: int, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Derivatives equal those computed step by step, for any number of rows at once."""
    nnet = network(delay)
    computation = program(nnet, derivatives=True)
    rng = np.random.default_rng(1)
    x, dy = (rng.standard_normal((FRAMES * SEQUENCES, dim), dtype=np.float32) for dim in (5, 4))

    def derivatives() -> tuple[np.ndarray, np.ndarray]:
        device = DeviceNnet(nnet, trainable=True)
        computer = NnetComputer(device, computation)
        computer.forward({"input": x})
        return computer.backward({"output": dy})["input"], device.direction

    monkeypatch.setattr(recurrences, "ROWS_AT_ONCE", rows_at_once)
    d_input, gradient = derivatives()
    monkeypatch.setattr(recurrences, "FEWEST_LATE", 10**6)
    expected_d_input, expected_gradient = derivatives()

    np.testing.assert_allclose(d_input, expected_d_input, rtol=0, atol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=0, atol=1e-4)


def test_other_components_are_left_alone() -> None:
    """Without affine maps, or without a backward pass, no derivatives are deferred."""
    nnet = network(-1)
    for has_derivatives, split in ((True, ()), (False, (0, 1))):
        computation = program(nnet, derivatives=has_derivatives)

        assert plan_with(nnet, computation, Stated(split=split)).late == {}
