"""The natural gradient's settings for each type: from config lines, and fixed by Kaldi."""

from __future__ import annotations

import pytest
from computations import single
from nnet3_runtime_cuda import DeviceNnet

Settings = tuple[int, int, float, float, float]
"""Rank, update period, history in samples, history in minibatches (0 for none), alpha."""

CASES: dict[str, tuple[str, int, list[Settings]]] = {
    "NaturalGradientAffine": (
        "input-dim=30 output-dim=50 rank-in=7 rank-out=9 update-period=3 num-samples-history=500 "
        "alpha=2",
        30,
        [(7, 3, 500.0, 0.0, 2.0), (9, 3, 500.0, 0.0, 2.0)],
    ),
    "NaturalGradientAffine by default": (
        "input-dim=300 output-dim=500",
        300,
        [(20, 4, 2000.0, 0.0, 4.0), (80, 4, 2000.0, 0.0, 4.0)],
    ),
    "Linear": (
        "input-dim=30 output-dim=50 rank-in=7 rank-out=9 update-period=3 num-samples-history=500 "
        "alpha=2",
        30,
        [(7, 3, 500.0, 0.0, 2.0), (9, 3, 500.0, 0.0, 2.0)],
    ),
    "Tdnn": (
        "input-dim=30 output-dim=50 time-offsets=0 rank-in=7 rank-out=9 num-samples-history=500 "
        "alpha-in=2 alpha-out=3",
        30,
        [(7, 4, 500.0, 0.0, 2.0), (9, 4, 500.0, 0.0, 3.0)],
    ),
    "TimeHeightConvolution": (
        "num-filters-in=30 num-filters-out=50 height-in=1 height-out=1 height-offsets=0 "
        "time-offsets=0 rank-in=7 rank-out=9 num-minibatches-history=5 alpha-in=2 alpha-out=3",
        30,
        [(7, 1, 2000.0, 5.0, 2.0), (9, 1, 2000.0, 5.0, 3.0)],
    ),
    "GruNonlinearity": (
        "cell-dim=30 rank-in=7 rank-out=9 update-period=3 alpha=2",
        120,
        [(7, 3, 2000.0, 0.0, 2.0), (9, 3, 2000.0, 0.0, 2.0)],
    ),
    "OutputGruNonlinearity": (
        "cell-dim=30 rank=7 update-period=3 alpha=2",
        90,
        [(7, 3, 2000.0, 0.0, 2.0)],
    ),
    "LstmNonlinearity": ("cell-dim=30", 150, [(20, 2, 1000.0, 0.0, 4.0)]),
    "NaturalGradientPerElementScale": (
        "dim=30 rank=7 update-period=3 num-samples-history=500 alpha=2",
        30,
        [(7, 3, 500.0, 0.0, 2.0)],
    ),
    "PerElementOffset": ("dim=30", 30, [(20, 4, 2000.0, 0.0, 4.0)]),
    "ScaleAndOffset": ("dim=30 rank=7", 30, [(7, 4, 2000.0, 0.0, 4.0)] * 2),
    "NaturalGradientRepeatedAffine": (
        "input-dim=60 output-dim=50 num-repeats=2",
        60,
        [(15, 4, 2000.0, 0.0, 4.0)],
    ),
    "ConstantFunction": ("input-dim=3 output-dim=50", 3, [(40, 1, 2000.0, 0.0, 4.0)]),
    "Constant": ("output-dim=50", 50, [(40, 1, 2000.0, 0.0, 4.0)]),
}


@pytest.mark.parametrize("name", CASES)
def test_settings(name: str) -> None:
    """Rank, period, history and alpha are those of the config line, or Kaldi's defaults."""
    options, dim, expected = CASES[name]
    nnet = single(f"type={name.split()[0]}Component {options}", dim=dim)

    kernel = DeviceNnet(nnet, natural_gradient=True).kernel(0)
    found = [estimate.options for estimate in kernel.store.estimates]

    assert sorted(expected) == sorted(
        (
            each.rank,
            each.update_period,
            each.num_samples_history,
            each.num_minibatches_history,
            each.alpha,
        )
        for each in found
    )
