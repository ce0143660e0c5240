"""CompositeComponent: its parts in sequence, for some rows at a time."""

import attrs
import numpy as np
import pytest
from formula_calls import STEP, SameDraws, Setting, assert_input_derivative, simple

PARTS = (
    "type=NaturalGradientAffineComponent input-dim=3 output-dim=8",
    "type=TanhComponent dim=8 self-repair-scale=0.0",
    "type=GruNonlinearityComponent cell-dim=2 self-repair-scale=0.05",
    "type=LinearComponent input-dim=4 output-dim=2",  # adds to its output
)


def composite(*parts: str, max_rows: int = 0, rows: int = 5, decision: bool = False) -> Setting:
    """A component of parts with random parameters."""
    listed = " ".join(f"component{n}='{part}'" for n, part in enumerate(parts, start=1))
    options = f"num-components={len(parts)} max-rows-process={max_rows} {listed}"
    made = simple(f"type=CompositeComponent {options}", rows)
    return attrs.evolve(made, draws=SameDraws(decision=decision))


def test_forward() -> None:
    """The output is the last part's, and the input of each part the output of the part before."""
    made = composite(*PARTS)
    x = made.random_x(np.random.default_rng(0))

    values = x
    for part in made.component.components:
        values = attrs.evolve(made, component=part).propagated(values).y
    np.testing.assert_array_equal(made.propagated(x).y, values)


@pytest.mark.parametrize("max_rows", [0, 2, 5])
def test_derivatives(max_rows: int) -> None:
    """Derivatives are right for any number of rows at a time."""
    rng = np.random.default_rng(1)
    made = composite(*PARTS, max_rows=max_rows)
    x, dy = made.random_x(rng), made.random_dy(rng)
    names = {"0.linear_params", "0.bias_params", "2.w_h", "3.params"}

    run = made.backpropagated(x, dy)
    assert set(run.gradient) == names
    assert_input_derivative(made, x, dy, rng)
    one_at_a_time = composite(*PARTS, max_rows=1).backpropagated(x, dy)
    np.testing.assert_allclose(run.dx, one_at_a_time.dx, rtol=1e-9)
    for name in names:
        np.testing.assert_allclose(run.gradient[name], one_at_a_time.gradient[name], rtol=1e-9)


def test_gradient() -> None:
    """The gradient of each part's parameters is that of the composite."""
    rng = np.random.default_rng(2)
    made = composite(*PARTS, max_rows=2)
    x, dy = made.random_x(rng), made.random_dy(rng)

    for name, gradient in made.backpropagated(x, dy).gradient.items():
        v = rng.standard_normal(gradient.shape)
        own_name = name.partition(".")[2]  # only one part has a parameter of this name
        after, before = (made.propagated(x, **{own_name: sign * STEP * v}).y for sign in (1, -1))
        expected = (dy * (after - before)).sum() / (2 * STEP)
        assert (gradient * v).sum() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("max_rows", [0, 2])
def test_statistics(max_rows: int) -> None:
    """Parts store statistics in the backward pass, by part number, added up over pieces."""
    rng = np.random.default_rng(3)
    made = composite(*PARTS, max_rows=max_rows, decision=True)
    x = made.random_x(rng)
    after = made.component.replace(
        **made.backpropagated(x, made.random_dy(rng)).statistics
    ).components

    tanh = np.tanh(attrs.evolve(made, component=made.component.components[0]).propagated(x).y)
    assert (after[1].count, after[2].count) == (5.0, 5.0)
    np.testing.assert_allclose(after[1].value_avg, tanh.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(after[1].deriv_avg, (1 - tanh**2).mean(axis=0), rtol=1e-5)
    gru = attrs.evolve(made, component=made.component.components[2]).propagated(tanh).y
    np.testing.assert_allclose(after[2].value_avg, gru[:, :2].mean(axis=0), rtol=1e-5)


def test_statistics_of_the_first_piece_alone() -> None:
    """Statistics of the first piece stay if the other pieces store none."""
    made = composite("type=TanhComponent dim=1", max_rows=2, rows=5, decision=False)
    x = np.arange(5.0)[:, None]
    (after,) = made.component.replace(**made.backpropagated(x, x).statistics).components

    assert after.count == 2.0  # there were no statistics before: the first rows always count
    np.testing.assert_allclose(after.value_avg, [np.tanh(1.0) / 2], rtol=1e-6)


def test_statistics_decide_on_repair() -> None:
    """A part stores its statistics before self-repair, so that the first rows count."""
    saturated = composite("type=TanhComponent dim=2 self-repair-scale=0.25", decision=True)
    x = np.full((5, 2), [9.0, 0.1])

    dx = saturated.backpropagated(x, np.zeros((5, 2))).dx
    np.testing.assert_allclose(dx, np.full((5, 2), [-0.5 * np.tanh(9.0), 0.0]), atol=1e-12)


def test_statistics_are_not_rounded_between_pieces() -> None:
    """A unit that is active in 19 of 20 pieces is not above 0.95, so the last row is unchanged."""
    relu = "type=RectifiedLinearComponent dim=1 self-repair-scale=0.1"
    x = np.where(np.arange(20) == 18, -1.0, 1.0)[:, None]

    dx = composite(relu, max_rows=1, rows=20, decision=True).backpropagated(x, np.ones((20, 1))).dx
    assert (dx[:18] < 1.0).all()
    assert dx[19] == 1.0  # averages in single precision would end at 0.95000005


@pytest.mark.parametrize(
    ("max_rows", "expected"), [(1, [0, 0, 0, 0]), (2, [-1, 1, -1, 1]), (3, [-1, 0, 1, 0])]
)
def test_pieces_have_their_own_mean(max_rows: int, expected: list[float]) -> None:
    """Batch-norm in a composite uses the mean over the rows of a piece."""
    made = composite("type=BatchNormComponent dim=1 epsilon=1e-12", max_rows=max_rows, rows=4)

    y = made.propagated(np.array([[0.0], [2.0], [4.0], [6.0]])).y[:, 0]
    np.testing.assert_allclose(np.sign(y.round(6)), expected)
