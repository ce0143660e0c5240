"""CMVN, deltas and voice activity equal Kaldi's tools and their definitions."""

import logging
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kaldi_cases import DELTAS, SLIDING, VAD, options
from nnet3_speech import (
    CmvnOptions,
    DeltaOptions,
    SlidingCmvnOptions,
    VadOptions,
    add_deltas,
    apply_cmvn,
    apply_sliding_cmvn,
    cmvn_stats,
    compute_vad,
)
from nnet3_speech.options import options_of

with np.load(Path(__file__).parent / "data" / "kaldi.npz") as _arrays:
    KALDI = dict(_arrays)
FEATURES = KALDI["input"]

SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 3), st.integers(0, 99))


def _features(shape: tuple[int, int, int]) -> np.ndarray:
    frames, dim, seed = shape
    return np.random.default_rng(seed).standard_normal((frames, dim)).astype(np.float32)


@pytest.mark.parametrize("name", SLIDING)
def test_sliding_cmvn(name: str) -> None:
    """Windows of each kind give the values of apply-cmvn-sliding, at the edges too."""
    chosen = options_of(SlidingCmvnOptions, options(SLIDING[name]), name)

    np.testing.assert_allclose(apply_sliding_cmvn(FEATURES, chosen), KALDI[name], atol=2e-5)


@given(SHAPES, st.integers(1, 50), st.integers(1, 50), st.booleans(), st.booleans())
def test_sliding_cmvn_definition(
    shape: tuple[int, int, int], window: int, least: int, norm_vars: bool, center: bool
) -> None:
    """Each frame is normalised by the mean and deviation of its window, found frame by frame."""
    features = _features(shape)
    least = min(least, window) if center else least
    chosen = SlidingCmvnOptions(window, least, 0, norm_vars, center)

    for frame, row in enumerate(apply_sliding_cmvn(features, chosen)):
        if center:
            first = min(frame - window // 2, len(features) - window)
            part = features[max(first, 0) :][:window]
        else:
            end = max(frame + 1, least)
            first = max(frame - window, 0) - max(end - len(features), 0)
            part = features[max(first, 0) : end]
        expected = features[frame] - part.mean(axis=0, dtype=np.float64)
        if norm_vars:
            expected = expected / np.maximum(part.std(axis=0, dtype=np.float64), 1e-5)
        np.testing.assert_allclose(row, expected, atol=1e-5)


def test_sliding_cmvn_far_from_zero() -> None:
    """Large offsets take nothing from the precision, and no frames give none."""
    features = _features((3000, 2, 0))

    np.testing.assert_allclose(
        apply_sliding_cmvn(features.astype(np.float64).round(2) + 2**16),
        apply_sliding_cmvn(features.round(2)),
        atol=0.02,  # the single precision of the features at 2**16
    )
    assert apply_sliding_cmvn(np.zeros((0, 3))).shape == (0, 3)


def test_floored_variances_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A column that does not change is logged for so many frames as the options say."""
    flooring = "Flooring when normalizing variance, floored 1 elements; num-frames was 30"
    chosen = options_of(SlidingCmvnOptions, options(SLIDING["sliding_short"]), "short")

    with caplog.at_level(logging.WARNING, "nnet3_speech"):
        apply_sliding_cmvn(FEATURES, chosen)

    assert caplog.messages == [
        flooring,
        flooring,
        "Suppressing the remaining variance flooring warnings. Use --max-warnings=-1 to see all "
        "warnings.",
    ]
    caplog.clear()
    apply_sliding_cmvn(FEATURES, SlidingCmvnOptions(norm_vars=True, max_warnings=-1))
    assert len(caplog.messages) == len(FEATURES)


@given(SHAPES, st.booleans())
def test_cmvn(shape: tuple[int, int, int], norm_vars: bool) -> None:
    """Normalised by its own statistics, an utterance has mean 0, and if asked for, variance 1."""
    features = 3 * _features(shape) + 7

    normalized = apply_cmvn(features, cmvn_stats(features), CmvnOptions(norm_vars=norm_vars))

    np.testing.assert_allclose(normalized.mean(axis=0), 0, atol=1e-4 if len(features) > 1 else 1e9)
    if norm_vars and len(features) > 1:
        np.testing.assert_allclose(normalized.std(axis=0), 1, rtol=1e-3)


def test_cmvn_of_speakers() -> None:
    """Statistics of utterances add up to those of a speaker; weights choose frames."""
    one, two = FEATURES[:50, :3], FEATURES[50:, :3]
    speaker = cmvn_stats(one) + cmvn_stats(two)

    np.testing.assert_allclose(speaker, cmvn_stats(FEATURES[:, :3]))
    np.testing.assert_allclose(cmvn_stats(FEATURES[:, :3], np.arange(130) < 50), cmvn_stats(one))
    assert speaker[0, -1] == 130
    assert speaker[1, -1] == 0
    np.testing.assert_allclose(
        apply_cmvn(two, speaker, CmvnOptions(norm_vars=True)),
        (two - FEATURES[:, :3].mean(axis=0)) / FEATURES[:, :3].std(axis=0),
        atol=1e-5,
    )
    np.testing.assert_array_equal(apply_cmvn(one, speaker, CmvnOptions(norm_means=False)), one)
    np.testing.assert_allclose(
        apply_cmvn(one, speaker[:1]), one - FEATURES[:, :3].mean(axis=0), atol=1e-5
    )


@pytest.mark.parametrize("name", DELTAS)
def test_deltas(name: str) -> None:
    """Deltas equal those of add-deltas; no frames have none."""
    chosen = options_of(DeltaOptions, options(DELTAS[name]), name)

    np.testing.assert_allclose(add_deltas(FEATURES, chosen), KALDI[name], atol=1e-5)
    assert add_deltas(FEATURES[:0], chosen).shape == (0, KALDI[name].shape[1])


@pytest.mark.parametrize("name", VAD)
def test_vad(name: str) -> None:
    """Frames are voiced where compute-vad says so."""
    voiced = compute_vad(FEATURES, options_of(VadOptions, options(VAD[name]), name))

    np.testing.assert_array_equal(voiced, KALDI[name])
    assert 10 < voiced.sum() < 120


@given(
    st.lists(st.sampled_from([0.0, 1.0]), min_size=0, max_size=30),
    st.integers(0, 6),
    st.sampled_from([0.2, 0.4, 0.5, 0.6, 0.8]),
)
def test_vad_definition(energy: list[float], context: int, proportion: float) -> None:
    """A frame is voiced if the part of the loud frames around it reaches the threshold."""
    chosen = VadOptions(0.5, 0.0, context, proportion)

    for frame, voiced in enumerate(compute_vad(np.array(energy).reshape(-1, 1), chosen)):
        around = energy[max(frame - context, 0) : frame + context + 1]
        assert voiced == (round(5 * sum(around)) >= round(5 * proportion * len(around)))
