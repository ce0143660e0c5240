"""Every component type with random configurations: derivatives, updates, and ways of operands.

Derivatives are compared with finite differences in float64; a small update raises the objective as
the gradient predicts; and results do not depend on where operands lie, as properties promise.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from nnet3_computation.commands import Backprop, Propagate
from nnet3_descriptors.components import ComponentProperties as Property
from nnet3_descriptors.components import component_types
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.kernels import Backpropagation, Memo, Propagation
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

    def __init__(self, drawn: Drawn, seed: int, *, natural_gradient: bool = False) -> None:
        self._drawn, self._seed, self._natural = drawn, seed, natural_gradient
        component, case = drawn.nnet.component("c"), drawn.case
        self._is_random = bool(component.properties & Property.RANDOM)
        self._bind()
        rng = np.random.default_rng(seed)
        shape = drawn.sequences * len(case.inputs), case.dim
        # Away from 0, where some functions have kinks.
        self.inputs = rng.uniform(0.1, 1.0, shape) * rng.choice((-1, 1), shape)
        self.is_constant = np.zeros(case.dim, dtype=bool)
        if "StatisticsPooling" in case.component:
            # Counts are constants; squares must give a positive variance.
            self.inputs[:, 0] = rng.integers(1, 4, shape[0])
            self.inputs[:, 1 + case.dim // 2 :] += 20.0
            self.is_constant[0] = True
        if "LstmNonlinearity" in case.component and component.use_dropout:
            self.is_constant[-3:] = True  # masks
        self.weights = rng.standard_normal(self._forward(self.inputs).shape)

    def _bind(self) -> None:
        """Binds the component anew, so that masks are those of the first run."""
        self._device_nnet = DeviceNnet(
            self._drawn.nnet,
            trainable=True,
            natural_gradient=self._natural,
            dtype=np.float64,
            seed=self._seed,
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
        return float((self._forward(inputs) * self.weights).sum())

    def derivatives(self) -> tuple[np.ndarray, np.ndarray]:
        """The derivatives with respect to inputs and parameters."""
        self._forward(self.inputs)
        self._device_nnet.direction.fill(np.nan)  # what an earlier pass left does not matter
        d_inputs = self._computer.backward({"output": self.weights})["input"]
        return d_inputs, self._device_nnet.direction.copy()


def assert_slope(f: Callable[[float], float], terms: np.ndarray) -> None:
    """Compares a central difference with the derivative, which is the sum of these terms."""
    slope = (f(STEP) - f(-STEP)) / (2 * STEP)
    assert abs(slope - terms.sum()) <= TOLERANCE * max(np.abs(terms).sum(), 1.0)


UPDATABLE = [
    kind
    for kind in TYPES
    if any(random_case(kind, Random(seed)).nnet().num_parameters for seed in range(20))
]
MINIBATCHES = 14
"""More minibatches than the first ones, on which all estimates of Fisher matrices change."""


def test_no_type_is_missing() -> None:
    """The tests below are for all component types, and for all that learn."""
    assert {f"{kind}Component" for kind in TYPES} == set(component_types())
    assert len(UPDATABLE) == 19
    assert {"Affine", "Composite", "LstmNonlinearity", "TimeHeightConvolution"} <= set(UPDATABLE)


@pytest.mark.parametrize("seed", CONFIGURATIONS)
@pytest.mark.parametrize("kind", TYPES)
def test_derivatives(kind: str, seed: int) -> None:
    """Both derivatives are those of the objective, along random directions."""
    objective = Objective(Drawn.of(kind, seed), seed)
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


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", UPDATABLE)
def test_updates_go_uphill(kind: str, seed: int) -> None:
    """In each minibatch a step along the natural gradient raises the objective as predicted."""
    drawn, rng = Drawn.of(kind, seed, has_parameters=True), np.random.default_rng(seed)
    plain, natural = (Objective(drawn, seed, natural_gradient=each) for each in (False, True))
    for _ in range(MINIBATCHES):
        natural.inputs = plain.inputs = rng.standard_normal(plain.inputs.shape)
        natural.weights = plain.weights = rng.standard_normal(plain.weights.shape)
        before = plain.value(plain.inputs)
        (_, gradient), (_, direction) = plain.derivatives(), natural.derivatives()

        step = 1e-4 * np.linalg.norm(plain.parameters) / np.linalg.norm(direction) * direction
        plain.parameters[:] += step
        natural.parameters[:] = plain.parameters

        assert gradient @ step > 0.0
        assert plain.value(plain.inputs) - before == pytest.approx(gradient @ step, rel=0.01)


def test_small_groups_have_small_derivatives() -> None:
    """If squares underflow, the derivative of a norm is no larger than for a longer row."""
    case = random_case("Pnorm", Random(0))
    computer = case.bound()
    for size in (1e-18, 1e-20, 1e-22, 1e-24, 1e-30, 1e-40, 0.0):
        inputs = np.full((2 * len(case.inputs), case.dim), size, dtype=np.float32)
        outputs = computer.forward({"input": inputs})["output"]
        derivatives = computer.backward({"output": np.ones_like(outputs)})["input"]
        assert (np.abs(derivatives) <= 1.0).all()


# ---- properties ----

GAP = 5
"""Columns of other matrices between the rows of a matrix that is not contiguous."""

Results = dict[str, np.ndarray]


class Runs:
    """A random component and its operands."""

    def __init__(self, kind: str, seed: int) -> None:
        drawn, rng, self._seed = Drawn.of(kind, seed), np.random.default_rng(seed), seed
        self._nnet, computation = drawn.nnet, drawn.computation
        self.properties = self._nnet.component("c").properties
        (forward,) = [c for c in computation.commands if isinstance(c, Propagate)]
        backward = [c for c in computation.commands if isinstance(c, Backprop)]
        numbers = [each.precomputed_indexes for each in (forward, *backward)]
        self._indexes = [computation.precomputed_indexes[number] for number in numbers]
        rows = computation.submatrices[[forward.input, forward.output], 2].tolist()
        self._x = rng.uniform(0.1, 1.0, (rows[0], drawn.case.dim))
        dim = self._nnet.component("c").output_dim
        self._dy = rng.standard_normal((rows[1], dim))
        self._there = [rng.standard_normal(each.shape) for each in (self._x, self._dy)]

    def results(self, *way: str) -> Results:
        """The results of a way, without the contents that they were added to."""
        network = DeviceNnet(
            self._nnet, trainable=True, dtype=np.float64, seed=self._seed, threads=1
        )
        kernel, has, found = network.kernel(0), self.properties, {}
        memo = Memo() if has & Property.USES_MEMO else None
        x_apart = "input apart" in way and not has & Property.INPUT_CONTIGUOUS
        y_apart = "output apart" in way and not has & Property.OUTPUT_CONTIGUOUS
        adds = {name: f"{name} adds" in way for name in ("forward", "backward")}
        in_place = {name: f"{name} in place" in way for name in ("forward", "backward")}
        x = placed(self._x, apart=x_apart)
        y = x if in_place["forward"] else placed(self._there[1], apart=y_apart)
        tape = network.tape()
        kernel.propagate(
            Propagation(
                tape=tape, x=x, y=y, add=adds["forward"], indexes=self._indexes[0], memo=memo
            )
        )
        tape.run()
        found["output"] = y - self._there[1] * adds["forward"]
        if in_place["forward"] or adds["forward"] or len(self._indexes) == 1:
            return found
        dy = placed(self._dy, apart=y_apart)
        dx = dy if in_place["backward"] else placed(self._there[0], apart=x_apart)
        needless = [
            np.full_like(each, np.nan if "needless values" in way else 1.0) for each in (x, y)
        ]
        tape = network.tape()
        if has & Property.STORES_STATS:
            kernel.store_stats(tape, y, memo)
        kernel.backprop(
            Backpropagation(
                tape=tape,
                x=x if has & Property.BACKPROP_NEEDS_INPUT else needless[0],
                y=y if has & Property.BACKPROP_NEEDS_OUTPUT else needless[1],
                dy=dy,
                dx=dx,
                add=adds["backward"],
                indexes=self._indexes[1],
                memo=memo,
                update=True,
            )
        )
        tape.run()
        found["input derivative"] = dx - self._there[0] * adds["backward"]
        found["gradient"] = network.direction
        return found | network.current().state_dict()


def placed(values: np.ndarray, *, apart: bool) -> np.ndarray:
    """A copy, possibly as columns of a wider matrix."""
    rows, columns = values.shape
    memory = np.full((rows, columns + GAP * apart), np.nan)
    copy = memory[:, :columns]
    copy[...] = values
    return copy


WAYS = {
    ("input apart",): Property(0),
    ("output apart",): Property(0),
    ("input apart", "output apart"): Property(0),
    ("forward in place",): Property.PROPAGATE_IN_PLACE,
    ("backward in place",): Property.BACKPROP_IN_PLACE,
    ("forward adds",): Property.PROPAGATE_ADDS,
    ("backward adds",): Property.BACKPROP_ADDS,
    ("needless values",): Property(0),
}
"""Ways of giving operands, with the property that a type must have for each.

Other columns can lie between the rows of input or output, if the type allows it; input and output
can be the same memory; results can be added to the output's contents; and values that the backward
pass of the type does not need can be anything.
"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", TYPES)
def test_operands_may_be_as_promised(kind: str, seed: int) -> None:
    """Results are the same for all ways of giving operands that a type's properties allow."""
    runs = Runs(kind, seed)
    expected = runs.results()

    for way, needed in WAYS.items():
        if needed in runs.properties:
            for what, array in runs.results(*way).items():
                np.testing.assert_allclose(
                    array, expected[what], rtol=1e-10, atol=1e-10, err_msg=f"{way}: {what}"
                )
