"""Statistics of activations, and self-repair by them, compared with plain formulas.

Both leave out minibatches at random; in these tests they use all or none.
"""

from __future__ import annotations

import numpy as np
import pytest
from computations import request, single
from nnet3_compiler import compile_computation
from nnet3_descriptors.components import Component
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.kernels import Kernel

TIMES = range(6)
ROWS = 2 * len(TIMES)
SCALE = 0.01


class Run:
    """A component after one forward and one backward pass.

    Attributes:
        x, y: Input and output.
        dx, dy: Their derivatives.
        parameters: The parameters as one vector.
        gradient: Their gradient.
        after: The component with its statistics.
    """

    def __init__(self, component: str, x: np.ndarray) -> None:
        nnet = single(component, dim=x.shape[1])
        network = DeviceNnet(nnet, trainable=True, dtype=np.float64)
        computer = NnetComputer(network, compile_computation(nnet, request(TIMES, TIMES)))
        self.x = x
        self.y = computer.forward({"input": x})["output"]
        self.dy = np.random.default_rng(7).standard_normal(self.y.shape)
        self.dx = computer.backward({"output": self.dy})["input"]
        self.parameters, self.gradient = network.parameters.copy(), network.direction.copy()
        self.after: Component = network.current().component("c")


@pytest.fixture(autouse=True)
def _all_minibatches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes all minibatches count."""
    monkeypatch.setattr(Kernel, "chance", lambda *_: True)


def columns(*sizes: float) -> np.ndarray:
    """Random columns of these sizes: large ones saturate, negative ones are shifted below 0."""
    rng = np.random.default_rng(3)
    return np.stack(
        [rng.standard_normal(ROWS) * abs(size) + min(size, 0.0) * 3 for size in sizes], axis=1
    )


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x)."""
    return 1.0 / (1.0 + np.exp(-x))


def assert_equal(actual: object, expected: object) -> None:
    """Compares values up to rounding of statistics in float32."""
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("chance", [True, False])
@pytest.mark.parametrize("kind", ["Sigmoid", "Tanh", "RectifiedLinear"])
def test_activations(kind: str, chance: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of saturated units are pushed towards 0, with twice the average strength."""
    monkeypatch.setattr(Kernel, "chance", lambda *_: chance)
    x = columns(1, 300, 5, -4, 8)
    if kind == "RectifiedLinear":
        x = np.stack([x[:, 0], x[:, 2] + 9, x[:, 0] - 9, x[:, 2], x[:, 3]], axis=1)
    run = Run(f"type={kind}Component dim=5 self-repair-scale={SCALE}", x)
    y, c = run.y, run.after
    slope = {"Sigmoid": y * (1 - y), "Tanh": 1 - y**2, "RectifiedLinear": (y > 0) * 1.0}[kind]
    average = slope.mean(axis=0)
    if kind == "RectifiedLinear":
        push = 1.0 * (average <= 0.05) - (average > 0.95)
    else:
        limit = {"Sigmoid": 0.05, "Tanh": 0.2}[kind]
        push = (average < limit) * ((1 - 2 * y) if kind == "Sigmoid" else -y)
    repaired = np.broadcast_to(push, y.shape).any(axis=0)
    assert 0 < repaired.sum() < 5

    assert_equal(run.dx, run.dy * slope + chance * 2 * SCALE * push)
    assert (c.count, c.oderiv_count) == (ROWS, ROWS)
    assert_equal(c.value_avg, y.mean(axis=0))
    assert_equal(c.deriv_avg, average)
    assert_equal(c.oderiv_rms, np.sqrt((run.dy**2).mean(axis=0)))
    assert c.num_dims_self_repaired == chance * repaired.sum()
    assert c.num_dims_processed == (5 if chance or kind != "RectifiedLinear" else 0)


def test_blocks_of_rectifiers() -> None:
    """The average over all blocks decides about the repair of a block's units."""
    x = columns(1, -9, 1, -9, 1, 1)
    run = Run(f"type=RectifiedLinearComponent dim=6 block-dim=2 self-repair-scale={SCALE}", x)
    active = (x > 0) * 1.0
    average = active.mean(axis=0).reshape(3, 2).mean(axis=0)
    assert average.min() > 0.05  # though two of the units have no positive output

    assert_equal(run.dx, run.dy * active)
    assert run.after.num_dims_processed == 2


def test_softmax() -> None:
    """A softmax stores averages of its outputs."""
    run = Run("type=SoftmaxComponent dim=4", columns(1, 2, 3, 4))

    assert run.after.count == ROWS
    assert_equal(run.after.value_avg, run.y.mean(axis=0))
    assert_equal(run.after.oderiv_rms, np.sqrt((run.dy**2).mean(axis=0)))


@pytest.mark.parametrize("has_scales", [False, True])
def test_lstm(has_scales: bool) -> None:
    """All five nonlinearities of a saturated cell are repaired, also in the gradient."""
    # Earlier statistics decide: those of a first run.
    dim, flag = 3, "true" if has_scales else "false"
    nnet = single(
        f"type=LstmNonlinearityComponent cell-dim={dim} use-dropout={flag} "
        f"self-repair-scale={SCALE} tanh-self-repair-threshold=0.3 "
        "sigmoid-self-repair-threshold=0.1",
        dim=5 * dim + 3 * has_scales,
    )
    network = DeviceNnet(nnet, trainable=True, dtype=np.float64)
    computer = NnetComputer(network, compile_computation(nnet, request(TIMES, TIMES)))
    sizes = [1, 99, 1, 99, 1, 1, 1, 1, 99, 1, 99, 1, 1, 1, 99]
    x = np.concatenate([columns(*sizes), columns(1, 1, 1)[:, : 3 * has_scales] > 0], axis=1)
    w = network.parameters.reshape(3, dim)
    dy = np.random.default_rng(7).standard_normal((ROWS, 2 * dim))
    values, slopes, repaired = (np.zeros((5, dim)) for _ in range(3))
    for number in range(2):
        computer.forward({"input": x})
        dx = computer.backward({"output": dy})["input"]

        saturated = slopes / (number * ROWS + 1) < np.array([0.1, 0.1, 0.3, 0.1, 0.3])[:, None]
        push = SCALE * saturated
        a_i, a_f, a_c, a_o, c_prev = (x[:, k * dim : (k + 1) * dim] for k in range(5))
        i_scale, f_scale, o_scale = x[:, 5 * dim :].T[:, :, None] if has_scales else (1, 1, 1)
        i, f, g = sigmoid(a_i + w[0] * c_prev), sigmoid(a_f + w[1] * c_prev), np.tanh(a_c)
        c = f_scale * f * c_prev + i_scale * i * g
        o, h = sigmoid(a_o + w[2] * c), np.tanh(c)
        dc_out, dm = dy[:, :dim], dy[:, dim:]
        d_o = o * (1 - o) * o_scale * h * dm - (2 * o - 1) * push[3]
        d_c = (1 - h**2) * o_scale * o * dm + dc_out + w[2] * d_o - h * push[4]
        d_f = f * (1 - f) * f_scale * c_prev * d_c - (2 * f - 1) * push[1]
        d_i = i * (1 - i) * i_scale * g * d_c - (2 * i - 1) * push[0]
        d_g = (1 - g**2) * i_scale * i * d_c - g * push[2]
        d_prev = w[0] * d_i + w[1] * d_f + f_scale * f * d_c

        assert_equal(dx[:, : 5 * dim], np.concatenate([d_i, d_f, d_g, d_o, d_prev], axis=1))
        assert_equal(dx[:, 5 * dim :], 0.0)
        gradient = [(c_prev * d_i).sum(0), (c_prev * d_f).sum(0), (c * d_o).sum(0)]
        assert_equal(network.direction, np.concatenate(gradient))
        gates = np.stack([i, f, g, o, h])
        is_tanh = np.array([0, 0, 1, 0, 1])[:, None, None]
        repaired += ROWS * saturated
        values += gates.sum(axis=1)
        slopes += np.where(is_tanh, 1 - gates**2, gates * (1 - gates)).sum(axis=1)
    assert 0 < saturated.sum() < 5 * dim

    after = network.current().component("c")
    assert after.count == 2 * ROWS
    assert_equal(after.value_avg, values / after.count)
    assert_equal(after.deriv_avg, slopes / after.count)
    assert_equal(after.self_repair_prob, repaired.sum(axis=1) / (dim * after.count))


@pytest.mark.parametrize("has_recurrent_dim", [True, False])
def test_gru(has_recurrent_dim: bool) -> None:
    """The tanh of a saturated cell is repaired, also in the gradient."""
    cell, recurrent = 4, 2 if has_recurrent_dim else 4
    option = f"recurrent-dim={recurrent}" if has_recurrent_dim else ""
    sizes = [*[1] * (cell + recurrent), 99, 1, 99, 1, *[1] * cell, *[1] * recurrent]
    run = Run(
        f"type=GruNonlinearityComponent cell-dim={cell} {option} self-repair-scale={SCALE}",
        columns(*sizes)[:, : None if has_recurrent_dim else 4 * cell],
    )
    z, r, part, c_prev, *s_prev = np.split(
        run.x, np.cumsum([cell, recurrent, cell, *[cell] * has_recurrent_dim]), axis=1
    )
    s = s_prev[0] if s_prev else c_prev
    w = run.parameters.reshape(cell, recurrent)
    h = np.tanh(part + (r * s) @ w.T)
    d_a = gru_cell_derivative(run, h, z)
    d_gated = d_a @ w
    dc_prev = z * run.dy[:, cell:]
    parts = [(c_prev - h) * run.dy[:, cell:], d_gated * s, d_a, dc_prev]
    if has_recurrent_dim:
        parts.append(d_gated * r)
    else:
        parts[-1] = dc_prev + d_gated * r

    assert_equal(run.dx, np.concatenate(parts, axis=1))
    assert_equal(run.gradient, (d_a.T @ (r * s)).ravel())


def test_output_gru() -> None:
    """The same with a vector of recurrent parameters."""
    cell = 4
    run = Run(
        f"type=OutputGruNonlinearityComponent cell-dim={cell} self-repair-scale={SCALE}",
        columns(*[1] * cell, 99, 1, 99, 1, *[1] * cell),
    )
    z, part, c_prev = np.split(run.x, 3, axis=1)
    h = np.tanh(part + run.parameters * c_prev)
    d_a = gru_cell_derivative(run, h, z)
    dc_prev = z * run.dy[:, cell:] + run.parameters * d_a

    assert_equal(run.dx, np.concatenate([(c_prev - h) * run.dy[:, cell:], d_a, dc_prev], axis=1))
    assert_equal(run.gradient, (c_prev * d_a).sum(axis=0))


def gru_cell_derivative(run: Run, h: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The derivative with respect to the argument of the tanh; checks its statistics."""
    cell, slope = h.shape[1], 1 - h**2
    average = slope.mean(axis=0)
    saturated = average < 0.2
    assert 0 < saturated.sum() < cell
    assert run.after.count == ROWS
    assert_equal(run.after.value_avg, h.mean(axis=0))
    assert_equal(run.after.deriv_avg, average)
    assert run.after.self_repair_total == saturated.sum()
    dh = run.dy[:, :cell] + (1 - z) * run.dy[:, cell:]
    found: np.ndarray = dh * slope - 2 * SCALE * saturated * h
    return found


def test_clipped_derivatives() -> None:
    """Long rows are clipped to the threshold; inputs that are clipped often are repaired.

    Repair does not change the mean norm of rows.
    """
    limit, target, scale = 2.0, 0.5, 0.3
    run = Run(
        f"type=ClipGradientComponent dim=5 norm-based-clipping=true clipping-threshold={limit} "
        f"self-repair-clipped-proportion-threshold=0.1 self-repair-target={target} "
        f"self-repair-scale={scale}",
        columns(1, 2, 3, 4, 5),
    )
    norms = np.linalg.norm(run.dy, axis=1)
    assert 0.1 < (norms > limit).mean() < 1.0
    clipped = run.dy * np.minimum(1.0, limit / norms)[:, None]
    excess = np.sign(run.x) * np.maximum(np.abs(run.x) - target, 0.0)
    before, length = mean_norm(clipped), mean_norm(excess)
    pushed = clipped - 2 * scale * (norms > limit).mean() * before / length * excess

    assert_equal(run.dx, pushed * before / mean_norm(pushed))
    c = run.after
    assert (c.num_clipped, c.count, c.num_self_repaired, c.num_backpropped) == (
        (norms > limit).sum(),
        ROWS,
        1,
        1,
    )


def mean_norm(rows: np.ndarray) -> float:
    """The mean Euclidean norm of rows."""
    return float(np.linalg.norm(rows, axis=1).mean())


@pytest.mark.parametrize(("threshold", "expected"), [(0.5, 0.5), (0.0, 0.0)])
def test_clipped_elements(threshold: float, expected: float) -> None:
    """Without norms, each element is clipped; a threshold of 0 passes nothing."""
    run = Run(f"type=ClipGradientComponent dim=5 clipping-threshold={threshold}", columns(*[1] * 5))

    assert_equal(run.dx, np.clip(run.dy, -expected, expected))


def test_truncated_derivatives() -> None:
    """Long rows are clipped, and zeroed at times where a recurrence crosses a boundary."""
    run = Run(
        "type=BackpropTruncationComponent dim=5 scale=0.5 clipping-threshold=1.0 "
        "zeroing-threshold=1.2 zeroing-interval=3 recurrence-interval=1",
        columns(*[1] * 5),
    )
    dy = 0.5 * run.dy
    norms = np.linalg.norm(dy, axis=1)
    is_boundary = np.array([(t - n) % 3 == 0 for n in range(2) for t in TIMES])
    is_zeroed = is_boundary & (norms > 1.2)
    assert 0 < is_zeroed.sum() < (norms > 1.0).sum() < ROWS

    assert_equal(run.dx, dy * (np.minimum(1.0, 1.0 / norms) * ~is_zeroed)[:, None])
    c = run.after
    assert (c.num_clipped, c.count) == ((norms > 1.0).sum(), ROWS)
    assert (c.num_zeroed, c.count_zeroing_boundaries) == (is_zeroed.sum(), is_boundary.sum())


def test_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights and their entropy are summed on two of three minibatches."""
    monkeypatch.setattr(Kernel, "chance", lambda _, probability: probability > 0.5)
    run = Run(
        "type=RestrictedAttentionComponent num-heads=2 key-dim=2 value-dim=1 num-left-inputs=1 "
        "num-right-inputs=1 num-left-inputs-required=0 num-right-inputs-required=0 "
        "output-context=true",
        columns(*[2] * 16),
    )
    weights = run.y.reshape(ROWS, 2, 4)[:, :, 1:]

    assert run.after.stats_count == ROWS
    assert_equal(run.after.posterior_stats, weights.sum(axis=0))
    assert_equal(run.after.entropy_stats, -(weights * np.log(weights)).sum(axis=(0, 2)))
