"""LSTM and GRU cells: values by hand, self-repair as a penalty, statistics as sums.

Self-repair is the gradient of a penalty on saturated units: scale times 2 log(1 + e^a) - a for a
sigmoid, whose derivative is 2 sigmoid(a) - 1, and scale times log cosh(a) for a tanh.
"""

import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from formula_calls import STEP, SameDraws, Setting, simple
from nnet3_runtime_reference.draws import Array

ROWS = 5
SCALE = 0.05

Arguments = Callable[[Any, Array, Array], list[Array]]
"""Arguments of the repaired nonlinearities, from component, input and parameters."""


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x)."""
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def lstm_arguments(c: Any, x: Array, params: Array) -> list[Array]:
    """The arguments of input gate, forget gate, cell input, output gate and cell output."""
    a_i, a_f, a_g, a_o, old = (x[:, k * c.cell_dim : (k + 1) * c.cell_dim] for k in range(5))
    s_i, s_f, _ = x[:, -3:].T[:, :, None] if c.use_dropout else (1.0, 1.0, 1.0)
    a_i, a_f = a_i + params[0] * old, a_f + params[1] * old
    cell = s_f * sigmoid(a_f) * old + s_i * sigmoid(a_i) * np.tanh(a_g)
    return [a_i, a_f, a_g, a_o + params[2] * cell, cell]


def gru_arguments(c: Any, x: Array, w_h: Array) -> list[Array]:
    """The argument of the tanh."""
    start, r = c.cell_dim, c.recurrent_dim
    gated = x[:, start : start + r] * x[:, -r:]
    return [x[:, start + r : 2 * start + r] + gated @ w_h.T]


def output_gru_arguments(c: Any, x: Array, w_h: Array) -> list[Array]:
    """The argument of the tanh."""
    _, part, old = np.split(x, 3, axis=1)
    return [part + w_h * old]


def penalty(kind: str, a: Array) -> Array:
    """The penalty that self-repair reduces."""
    return 2 * np.log1p(np.exp(a)) - a if kind == "sigmoid" else np.log(np.cosh(a))


LSTM_KINDS = ["sigmoid", "sigmoid", "tanh", "sigmoid", "tanh"]


def lstm(dropout: bool, scale: float = SCALE) -> Setting:
    """An LSTM of three cells with average derivatives on both sides of the thresholds."""
    made = simple(
        f"type=LstmNonlinearityComponent cell-dim=3 use-dropout={str(dropout).lower()} "
        f"self-repair-scale={scale} sigmoid-self-repair-threshold=0.1",
        ROWS,
    )
    averages = np.array(
        [[0.05, 0.2, 0.104], [0.2, 0.05, 0.2], [0.1, 0.205, 0.3], [0.2, 0.3, 0], [0.3, 0, 0]]
    )
    component = made.component.replace(deriv_avg=averages, count=20.0)
    return attrs.evolve(made, component=component, draws=SameDraws(decision=True))


SATURATED = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]])
"""True where average * 20 / 21 is below 0.1 for a sigmoid, below 0.2 for a tanh."""


def gru(kind: str, scale: float = SCALE) -> Setting:
    """A GRU of three cells; earlier average derivatives are small for two of them."""
    made = simple(f"type={kind}Component cell-dim=3 self-repair-scale={scale}", ROWS)
    component = made.component.replace(deriv_avg=[0.01, 0.9, 0.15], count=20.0)
    return attrs.evolve(made, component=component, draws=SameDraws(decision=True))


def objective(
    made: Setting, x: Array, dy: Array, repaired: Array, arguments: Arguments, kinds: list[str]
) -> Callable[[Array, Array], float]:
    """The sum of dy y minus the penalty, as a function of shifts of x and of the parameters."""
    (name,) = made.component.parameters
    params = np.asarray(made.component.parameter_arrays()[name], np.float64)

    def value(shift_x: Array, shift_params: Array) -> float:
        total = (dy * made.propagated(x + shift_x, **{name: shift_params}).y).sum()
        found = arguments(made.component, x + shift_x, params + shift_params)
        for kind, a, scale in zip(kinds, found, repaired, strict=True):
            total -= (scale * penalty(kind, a)).sum()
        return float(total)

    return value


def assert_repaired(
    made: Setting, repaired: Array, arguments: Arguments, kinds: list[str], masks: int = 0
) -> None:
    """Asserts that the derivatives are those of the objective with the penalty."""
    rng = np.random.default_rng(3)
    x, dy = made.random_x(rng), made.random_dy(rng)
    run = made.backpropagated(x, dy)
    (gradient,) = run.gradient.values()
    value = objective(made, x, dy, repaired, arguments, kinds)
    for _ in range(4):
        v, w = rng.standard_normal(x.shape), rng.standard_normal(gradient.shape)
        v[:, x.shape[1] - masks :] = 0.0
        for shift_x, shift_params in ((v, 0.0 * w), (0.0 * v, w)):
            after = value(STEP * shift_x, STEP * shift_params)
            before = value(-STEP * shift_x, -STEP * shift_params)
            found = (run.dx * shift_x).sum() + (gradient * shift_params).sum()
            assert found == pytest.approx((after - before) / (2 * STEP), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("dropout", [False, True])
def test_self_repair_of_lstm(dropout: bool) -> None:
    """Earlier statistics choose the repaired cells; repair affects all derivatives before them."""
    assert_repaired(lstm(dropout), SCALE * SATURATED, lstm_arguments, LSTM_KINDS, masks=3 * dropout)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [("GruNonlinearity", gru_arguments), ("OutputGruNonlinearity", output_gru_arguments)],
)
def test_self_repair_of_gru(kind: str, arguments: Arguments) -> None:
    """Saturated cells are repaired in half of the minibatches, with twice the strength."""
    # The third cell's average is 0.15 before, and above 0.2 with this minibatch.
    assert_repaired(gru(kind), np.array([[2 * SCALE, 0, 0]]), arguments, ["tanh"])
    never = attrs.evolve(gru(kind), draws=SameDraws(decision=False))
    assert_repaired(never, np.zeros((1, 3)), arguments, ["tanh"])


def test_lstm_by_hand() -> None:
    """One row and one cell follow the equations of an LSTM with peepholes and masks."""
    made = simple("type=LstmNonlinearityComponent cell-dim=1 use-dropout=true", 1)
    made = attrs.evolve(made, component=made.component.replace(params=[[0.5], [-1.0], [2.0]]))
    y = made.propagated(np.array([[0.1, 0.2, 0.3, 0.4, 0.6, 0.0, 1.0, 3.0]])).y

    cell = 0.6 / (1 + math.exp(-(0.2 - 0.6)))  # the input gate is masked
    output = 3.0 * math.tanh(cell) / (1 + math.exp(-(0.4 + 2.0 * cell)))
    np.testing.assert_allclose(y, [[cell, output]], rtol=1e-12)


def test_gru_by_hand() -> None:
    """One row follows the equations of a projected GRU."""
    made = simple("type=GruNonlinearityComponent cell-dim=2 recurrent-dim=1", 1)
    made = attrs.evolve(made, component=made.component.replace(w_h=[[0.5], [-1.0]]))
    # z, r, p, c', s
    y = made.propagated(np.array([[0.25, 1.0, 0.5, 0.1, 0.2, 3.0, 4.0, 0.8]])).y

    h = [math.tanh(0.1 + 0.5 * 0.4), math.tanh(0.2 - 0.4)]
    np.testing.assert_allclose(y, [[*h, 0.75 * h[0] + 0.25 * 3.0, 4.0]], rtol=1e-12)


def test_statistics_of_lstm() -> None:
    """Statistics are averages of five nonlinearities, of their derivatives, and repair counts."""
    made = lstm(dropout=False)
    before = made.component
    rng = np.random.default_rng(5)
    x = made.random_x(rng)
    changed = made.backpropagated(x, made.random_dy(rng)).statistics

    arguments = lstm_arguments(before, x, np.asarray(before.params, np.float64))
    values = [
        sigmoid(a) if kind == "sigmoid" else np.tanh(a)
        for kind, a in zip(LSTM_KINDS, arguments, strict=True)
    ]
    slopes = [
        v * (1 - v) if kind == "sigmoid" else 1 - v * v
        for kind, v in zip(LSTM_KINDS, values, strict=True)
    ]
    assert changed["count"] == 25.0
    sums = [v.sum(axis=0) for v in values], [s.sum(axis=0) for s in slopes]
    for name, added in zip(("value_avg", "deriv_avg"), sums, strict=True):
        expected = (20 * getattr(before, name).astype(np.float64) + np.array(added)) / 25
        np.testing.assert_allclose(changed[name], expected, rtol=1e-9)
    np.testing.assert_allclose(changed["self_repair_prob"], SATURATED.mean(axis=1) * ROWS / 25)
    assert before.replace(**changed).count == 25.0


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [("GruNonlinearity", gru_arguments), ("OutputGruNonlinearity", output_gru_arguments)],
)
def test_statistics_of_gru(kind: str, arguments: Arguments) -> None:
    """Statistics are averages of the tanh and its derivative; a repaired cell counts once."""
    made = gru(kind)
    before = made.component
    rng = np.random.default_rng(3)
    x = made.random_x(rng)
    changed = made.backpropagated(x, made.random_dy(rng)).statistics

    (a,) = arguments(before, x, np.asarray(before.w_h, np.float64))
    h = np.tanh(a)
    expected = (20 * before.deriv_avg.astype(np.float64) + (1 - h * h).sum(axis=0)) / 25
    np.testing.assert_allclose(changed["deriv_avg"], expected, rtol=1e-9)
    np.testing.assert_allclose(changed["value_avg"], h.sum(axis=0) / 25, rtol=1e-9)
    assert (changed["count"], changed["self_repair_total"]) == (25.0, 1.0)
    never = attrs.evolve(made, draws=SameDraws(decision=False))
    assert never.backpropagated(x, made.random_dy(rng)).statistics == {}
