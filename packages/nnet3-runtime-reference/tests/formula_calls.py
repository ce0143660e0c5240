"""Settings for formulas: components, indexes and values; checks by finite differences."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from nnet3_descriptors import Component, parse_config
from nnet3_runtime_reference import Call, Draws, Formula, formula_of
from nnet3_runtime_reference.draws import Array, MakeMask

NO_TIME = np.iinfo(np.int32).min
"""The t of padding rows."""

STEP = 1.0e-5
DOUBLE = np.dtype(np.float64)


class SameDraws(Draws):
    """Draws the same masks each time, and always decides the same way."""

    def __init__(self, *, decision: bool, seed: int = 0) -> None:
        super().__init__(seed)
        self.decision, self.seed = decision, seed

    def chance(self, component: str, probability: float) -> bool:
        """Returns the decision."""
        return self.decision

    def mask(self, component: str, shape: tuple[int, int], make: MakeMask) -> Array:
        """Returns the mask of the seed."""
        mask = make(np.random.default_rng(self.seed))
        assert mask.shape == shape
        return mask


@attrs.frozen(eq=False)
class ShiftedCall(Call):
    """A call with shifted parameters."""

    shift: dict[str, Array] = attrs.field(factory=dict)

    def parameter(self, name: str) -> Array:
        """Returns the shifted parameter."""
        value = super().parameter(name)
        return value + self.shift[name] if name in self.shift else value


@attrs.frozen(eq=False)
class Setting:
    """A component, and the rows of its input and output.

    Attributes:
        component: The component.
        input_indexes: (rows_in, 3): n, t, x; padding has t = NO_TIME.
        output_indexes: (rows_out, 3), the same for the output.
        indexes: The component's precomputed indexes for these rows.
        draws: Source of masks and decisions.
        dtype: The type of the arithmetic.
    """

    component: Any
    input_indexes: Array
    output_indexes: Array
    indexes: Any
    draws: Draws = attrs.field(factory=lambda: SameDraws(decision=False))
    dtype: np.dtype[Any] = DOUBLE

    @property
    def formula(self) -> Formula:
        """The formula of the component."""
        return formula_of(self.component)

    def random_x(self, rng: np.random.Generator) -> Array:
        """Returns random values at the input; padding is 0."""
        x = rng.standard_normal((len(self.input_indexes), self.component.input_dim))
        x[self.input_indexes[:, 1] == NO_TIME] = 0.0
        return x

    def random_dy(self, rng: np.random.Generator) -> Array:
        """Returns random derivatives at the output."""
        return rng.standard_normal((len(self.output_indexes), self.component.output_dim))

    def propagated(self, x: Array, **shift: Array) -> ShiftedCall:
        """Returns the call after the forward pass, with memo and y."""
        rows_in, rows_out = len(self.input_indexes), len(self.output_indexes)
        nothing = np.full((rows_out, self.component.output_dim), np.nan, self.dtype)
        call = ShiftedCall(
            component=self.component,
            name="c",
            x=read_only(x.astype(self.dtype)),
            y=nothing,
            dy=nothing,
            rows_in=rows_in,
            rows_out=rows_out,
            indexes=self.indexes,
            draws=self.draws,
            dtype=self.dtype,
            shift=shift,
        )
        call = attrs.evolve(call, memo=self.formula.memo(call))
        return attrs.evolve(call, y=read_only(self.formula.forward(call)))

    def backpropagated(self, x: Array, dy: Array) -> Backward:
        """Returns the results of Propagate and Backprop."""
        call = attrs.evolve(self.propagated(x), dy=read_only(dy.astype(self.dtype)), updates=True)
        call = attrs.evolve(call, decision=self.formula.decide(call))
        return Backward(
            y=call.y,
            dx=self.formula.backward(call),
            gradient=dict(self.formula.gradient(call)),
            statistics=dict(self.formula.backward_statistics(call)),
        )


def read_only(values: Array) -> Array:
    """Returns the values as a read-only array."""
    values = values.view()
    values.flags.writeable = False
    return values


@attrs.frozen(eq=False)
class Backward:
    """The results of Propagate and Backprop of a component.

    Attributes:
        y: The output.
        dx: The derivative at the input.
        gradient: The gradient of the parameters.
        statistics: The changed fields.
    """

    y: Array
    dx: Array
    gradient: dict[str, Array]
    statistics: dict[str, Any]


def component(options: str, seed: int = 0) -> Component:
    """Returns a component, from `type=... key=value ...`, with random parameters."""
    nodes = "input-node name=input dim=1\noutput-node name=output input=input\n"
    text = f"{nodes}component name=c {options}\n"
    return parse_config(text, rng=np.random.default_rng(seed)).component("c")


def simple(options: str, rows: int, *, seed: int = 0) -> Setting:
    """Returns a component without indexes, for some rows of one sequence."""
    indexes = np.array([[0, t, 0] for t in range(rows)], np.int32)
    made = component(options, seed)
    return Setting(made, indexes, indexes, made.precompute_indexes(indexes, indexes, True))


def setting(
    options: str, output_indexes: Array, rng: np.random.Generator, *, missing: float = 0.0
) -> Setting:
    """Returns a component with the input rows that the given output rows need.

    Args:
        options: `type=... key=value ...`.
        output_indexes: (N, 3): n, t, x.
        rng: Chooses the missing inputs.
        missing: Probability that an input is missing; outputs that then cannot be computed are
            left out.
    """
    made = component(options, int(rng.integers(1000)))
    splits, needed = made.input_dependencies(np.asarray(output_indexes, np.int32))
    inputs, where = np.unique(needed, axis=0, return_inverse=True)
    available = (rng.random(len(inputs)) >= missing)[where.ravel()]
    computable, used = made.is_computable(output_indexes, splits, needed, available)
    if not computable.any():
        computable, used = np.ones_like(computable), np.ones_like(used)
    used_inputs = np.unique(needed[used], axis=0)
    outputs = np.unique(output_indexes[computable], axis=0)
    inputs, outputs = made.reorder_indexes(used_inputs, outputs)
    return Setting(made, inputs, outputs, made.precompute_indexes(inputs, outputs, True))


def random_output_indexes(rng: np.random.Generator, *, step: int = 1, x: int = 1) -> Array:
    """Returns random (n, t, x) of one to three sequences, with some times missing."""
    rows = [
        [n, step * t, place]
        for n in range(rng.integers(1, 4))
        for t in range(-2, rng.integers(2, 7))
        for place in range(x)
        if rng.random() < 0.8
    ]
    return np.array(rows or [[0, 0, 0]], np.int32)


def assert_input_derivative(
    setting: Setting, x: Array, dy: Array, rng: np.random.Generator, constant: tuple[int, ...] = ()
) -> None:
    """Asserts that dx is the derivative of the sum of dy y, in random directions.

    The directions do not change columns of x that count as constants.
    """
    dx = setting.backpropagated(x, dy).dx
    assert dx.shape == x.shape
    assert not dx[:, list(constant)].any()
    for _ in range(3):
        v = rng.standard_normal(x.shape)
        v[:, list(constant)] = 0.0
        after, before = (setting.propagated(x + sign * STEP * v).y for sign in (1, -1))
        found = (dx * v).sum()
        expected = (dy * (after - before)).sum() / (2.0 * STEP)
        assert abs(found - expected) <= 1e-7 * (1.0 + np.abs(dx * v).sum())


def assert_gradient(setting: Setting, x: Array, dy: Array, rng: np.random.Generator) -> None:
    """Asserts that the gradient of each parameter is the derivative of the sum of dy y."""
    gradient = setting.backpropagated(x, dy).gradient
    shapes = {name: array.shape for name, array in setting.component.parameter_arrays().items()}
    assert {name: array.shape for name, array in gradient.items() if array.size} == {
        name: shape for name, shape in shapes.items() if 0 not in shape
    }
    for name, found_gradient in gradient.items():
        for _ in range(3):
            v = rng.standard_normal(found_gradient.shape)
            after, before = (setting.propagated(x, **{name: sign * STEP * v}).y for sign in (1, -1))
            found = (found_gradient * v).sum()
            expected = (dy * (after - before)).sum() / (2.0 * STEP)
            assert abs(found - expected) <= 1e-7 * (1.0 + np.abs(found_gradient * v).sum())
