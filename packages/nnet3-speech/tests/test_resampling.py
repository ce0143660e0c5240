"""Resampling is a windowed sinc interpolation, in whatever pieces the samples come."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_speech.audio import Resampler


def _definition(samples: np.ndarray, rate_in: int, rate_out: int) -> np.ndarray:
    """The sum over all samples for each output, as the formula says."""
    cutoff = 0.99 / 2 * min(rate_in, rate_out)
    outputs = [k for k in range(10 * len(samples) + 1) if k * rate_in < len(samples) * rate_out]
    times = np.array(outputs)[:, None] / rate_out - np.arange(len(samples)) / rate_in
    window = np.where(np.abs(times) < 3 / cutoff, 1 + np.cos(np.pi * cutoff / 3 * times), 0)
    return (cutoff / rate_in * np.sinc(2 * cutoff * times) * window) @ samples


@pytest.mark.parametrize(
    "rates",
    [(16000, 8000), (8000, 16000), (22050, 16000), (44100, 16000), (7, 5), (5, 48), (48, 5)],
)
@given(st.integers(0, 300), st.lists(st.integers(0, 300), max_size=6))
def test_definition_in_pieces(rates: tuple[int, int], count: int, places: list[int]) -> None:
    """The outputs equal the formula's, as float32, and the pieces change nothing."""
    samples = np.random.default_rng(count).standard_normal(count).astype(np.float32)

    whole = Resampler(*rates)
    outputs = np.concatenate([whole.push(samples), whole.finish()])
    resampler = Resampler(*rates)
    pieces = [
        resampler.push(piece)
        for piece in np.split(samples, sorted(place for place in places if place <= count))
    ]

    np.testing.assert_array_equal(np.concatenate([*pieces, resampler.finish()]), outputs)
    np.testing.assert_allclose(outputs, _definition(samples, *rates), atol=1e-6)


def test_few_samples_are_kept() -> None:
    """What earlier outputs needed is forgotten."""
    resampler = Resampler(44100, 16000)
    for _ in range(20):
        resampler.push(np.zeros(10000, np.float32))

    assert len(resampler._kept) < 100
