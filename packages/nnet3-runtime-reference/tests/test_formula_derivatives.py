"""Derivatives of formulas compared with central finite differences, for random components."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import pytest
from formula_calls import (
    SameDraws,
    Setting,
    assert_gradient,
    assert_input_derivative,
    random_output_indexes,
    setting,
    simple,
)

Rng = np.random.Generator


def _numbers(rng: Rng, *bounds: tuple[int, int]) -> list[int]:
    """Random numbers within the given bounds, both inclusive."""
    return [int(rng.integers(low, high + 1)) for low, high in bounds]


def _offsets(rng: Rng, largest: int) -> str:
    """One to three distinct ascending offsets."""
    choice = rng.choice(np.arange(-largest, largest + 1), rng.integers(1, 4), replace=False)
    return ",".join(map(str, sorted(choice.tolist())))


def _tdnn(rng: Rng) -> Setting:
    dim_in, dim_out, step = _numbers(rng, (1, 4), (1, 4), (1, 3))
    flag = rng.choice(["true", "false"])
    options = f"input-dim={dim_in} output-dim={dim_out} use-bias={flag}"
    times = random_output_indexes(rng, step=step, x=2)
    return setting(
        f"type=TdnnComponent time-offsets={_offsets(rng, 4)} {options} bias-stddev=1", times, rng
    )


def _time_height_convolution(rng: Rng) -> Setting:
    height_in, stride, filters_in, filters_out, step = _numbers(
        rng, (3, 6), (1, 2), (1, 3), (1, 3), (1, 3)
    )
    height_out = (height_in - 1) // stride + 1
    options = (
        f"num-filters-in={filters_in} num-filters-out={filters_out} height-in={height_in} "
        f"height-out={height_out} height-subsample-out={stride} height-offsets=-1,0,1 "
        f"time-offsets=-{step},0,{step} bias-stddev=1"
    )
    if rng.integers(2):
        options += f" required-time-offsets={rng.choice(['0', f'0,{step}'])}"
    times = random_output_indexes(rng, step=int(rng.choice([1, 2, step])))
    return setting(f"type=TimeHeightConvolutionComponent {options}", times, rng, missing=0.2)


def _attention(rng: Rng) -> Setting:
    heads, key, value, left, right, stride = _numbers(
        rng, (1, 3), (1, 3), (1, 3), (1, 2), (0, 2), (1, 2)
    )
    flag = rng.choice(["true", "false"])
    options = (
        f"num-heads={heads} key-dim={key} value-dim={value} num-left-inputs={left} "
        f"num-right-inputs={right} time-stride={stride} output-context={flag} "
        f"num-left-inputs-required={rng.integers(left + 1)} "
        f"num-right-inputs-required={rng.integers(right + 1)}"
    )
    times = random_output_indexes(rng, step=int(rng.integers(1, 4)))
    return setting(f"type=RestrictedAttentionComponent {options}", times, rng, missing=0.1)


def _windows(rng: Rng, axes: str, window_name: str) -> str:
    """Sizes of the input, of windows, and of steps that divide the rest."""
    options = ""
    for axis in axes:
        window, step, steps = _numbers(rng, (1, 3), (1, 2), (0, 2))
        step = min(step, window)
        options += (
            f"input-{axis}-dim={window + step * steps} "
            f"{window_name.format(axis=axis)}={window} "
            f"{window_name.split('-')[0]}-{axis}-step={step} "
        )
    return options


def _convolution(rng: Rng) -> Setting:
    options = _windows(rng, "xy", "filt-{axis}-dim")
    options += f"input-z-dim={rng.integers(1, 4)} num-filters={rng.integers(1, 4)} "
    options += f"input-vectorization-order={rng.choice(['zyx', 'yzx'])}"
    return simple(f"type=ConvolutionComponent {options}", 3)


def _maxpooling(rng: Rng) -> Setting:
    return simple(f"type=MaxpoolingComponent {_windows(rng, 'xyz', 'pool-{axis}-size')}", 3)


def _distribute(rng: Rng) -> Setting:
    dim, blocks = _numbers(rng, (1, 3), (1, 3))
    outputs = random_output_indexes(rng, x=2 * blocks)
    return setting(
        f"type=DistributeComponent input-dim={dim * blocks} output-dim={dim}", outputs, rng
    )


def _lstm(rng: Rng) -> Setting:
    flag = rng.choice(["true", "false"])
    return simple(
        f"type=LstmNonlinearityComponent cell-dim={rng.integers(1, 4)} use-dropout={flag} "
        "self-repair-scale=0",
        4,
    )


def _gru(rng: Rng) -> Setting:
    cell = rng.integers(2, 5)
    recurrent = rng.integers(1, cell + 1)
    return simple(f"type=GruNonlinearityComponent cell-dim={cell} recurrent-dim={recurrent}", 4)


def _output_gru(rng: Rng) -> Setting:
    return simple(f"type=OutputGruNonlinearityComponent cell-dim={rng.integers(1, 5)}", 4)


def _general_dropout(rng: Rng) -> Setting:
    block, blocks = _numbers(rng, (1, 6), (1, 3))
    kind = rng.choice(["continuous=true", "specaugment-max-proportion=0.7", ""])
    options = f"dim={block * blocks} block-dim={block} time-period={rng.integers(3)} {kind}"
    return setting(f"type=GeneralDropoutComponent {options}", random_output_indexes(rng), rng)


def _time_mask(rng: Rng) -> Setting:
    options = f"type=SpecAugmentTimeMaskComponent dim={rng.integers(1, 5)} time-mask-max-frames=2"
    return setting(options, random_output_indexes(rng), rng)


def _extraction(rng: Rng) -> Setting:
    dim, period, periods = _numbers(rng, (1, 4), (1, 2), (1, 3))
    flag = rng.choice(["true", "false"])
    times = random_output_indexes(rng, step=period * periods)
    return setting(
        f"type=StatisticsExtractionComponent input-dim={dim} input-period={period} "
        f"output-period={period * periods} include-variance={flag}",
        times,
        rng,
        missing=0.2,
    )


CASES: dict[str, Callable[[Rng], Setting]] = {
    "attention": _attention,
    "convolution": _convolution,
    "distribute": _distribute,
    "extraction": _extraction,
    "general-dropout": _general_dropout,
    "gru": _gru,
    "lstm": _lstm,
    "maxpooling": _maxpooling,
    "output-gru": _output_gru,
    "tdnn": _tdnn,
    "time-height-convolution": _time_height_convolution,
    "time-mask": _time_mask,
}


def _pooling(rng: Rng) -> Setting:
    dim, period, left, right, logs = _numbers(rng, (1, 3), (1, 2), (0, 3), (1, 3), (0, 2))
    flag = rng.choice(["true", "false"])
    return setting(
        f"type=StatisticsPoolingComponent input-dim={1 + 2 * dim} input-period={period} "
        f"left-context={left * period} right-context={right * period} "
        f"num-log-count-features={logs} output-stddevs={flag}",
        random_output_indexes(rng, step=period),
        rng,
        missing=0.2,
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", CASES)
def test_derivatives(name: str, seed: int) -> None:
    """The input derivative and the gradient are those of the forward formula."""
    rng = np.random.default_rng([seed, *name.encode()])
    made = CASES[name](rng)
    x, dy = made.random_x(rng), made.random_dy(rng)
    constant: tuple[int, ...] = ()
    if name == "lstm" and made.component.use_dropout:
        constant = tuple(range(x.shape[1] - 3, x.shape[1]))  # masks are constants

    assert_input_derivative(made, x, dy, rng, constant)
    assert_gradient(made, x, dy, rng)


@pytest.mark.parametrize("seed", range(6))
def test_statistics_pooling(seed: int) -> None:
    """Derivatives of means and standard deviations are right, with constant counts."""
    rng = np.random.default_rng(seed)
    made = _pooling(rng)
    count = rng.integers(1, 5, size=(len(made.input_indexes), 1))
    mean = rng.standard_normal((len(count), made.component.input_dim // 2))
    variance = rng.random(mean.shape) + 0.1
    x = np.concatenate([count, count * mean, count * (mean**2 + variance)], axis=1)

    assert_input_derivative(made, x, made.random_dy(rng), rng, constant=(0,))


@pytest.mark.parametrize("name", CASES)
def test_single_precision(name: str) -> None:
    """With float32, all arithmetic is in float32, and near to that in float64."""
    rng = np.random.default_rng([0, *name.encode()])
    made = attrs.evolve(CASES[name](rng), draws=SameDraws(decision=True))
    x, dy = made.random_x(rng), made.random_dy(rng)

    expected = made.backpropagated(x, dy)
    found = attrs.evolve(made, dtype=np.dtype(np.float32)).backpropagated(x, dy)
    for array, other in (
        (found.y, expected.y),
        (found.dx, expected.dx),
        *((found.gradient[key], expected.gradient[key]) for key in expected.gradient),
    ):
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, other, rtol=1e-3, atol=1e-4)
