"""Mixtures, extractors, states and normalisation of i-vectors: values by definition, and files."""

from __future__ import annotations

import io
from pathlib import Path

import ivector_definition as definition
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from nnet3_speech import (
    AdaptationState,
    FullGmm,
    IvectorExtractor,
    OnlineCmvn,
    OnlineCmvnOptions,
    OnlineCmvnState,
    Posteriors,
    pruned_posteriors,
)

seeds = st.integers(0, 2**32 - 1)


def positive(rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
    """Positive matrices, (count, dim, dim)."""
    roots = rng.standard_normal((count, dim, dim))
    return roots @ roots.swapaxes(1, 2) + np.eye(dim)


def full_mixture(rng: np.random.Generator, count: int, dim: int) -> FullGmm:
    """A mixture with full covariances."""
    inverses = positive(rng, count, dim).astype(np.float32)
    means = rng.standard_normal((count, dim))
    return FullGmm(
        weights=rng.dirichlet(np.ones(count)).astype(np.float32) + np.float32(1e-3),
        means_invcovars=np.einsum("nij,nj->ni", inverses, means).astype(np.float32),
        inv_covars=inverses,
    )


def extractor(
    rng: np.random.Generator, count: int, dim: int, size: int, w: bool
) -> IvectorExtractor:
    """An extractor whose weights depend on the i-vector if `w`."""
    return IvectorExtractor(
        weight_projections=rng.standard_normal((count, size)) * 0.1 if w else np.zeros((0, 0)),
        weights=np.zeros(0) if w else rng.dirichlet(np.ones(count)),
        projections=rng.standard_normal((count, dim, size)),
        inverse_covariances=positive(rng, count, dim),
        prior_offset=3.5,
    )


@given(seed=seeds)
def test_likelihoods_of_full_covariances(seed: int) -> None:
    """The log-likelihoods are those of normal distributions, with the logarithms of weights."""
    rng = np.random.default_rng(seed)
    mixture = full_mixture(rng, int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    frames = rng.standard_normal((3, mixture.dim)).astype(np.float32)

    found = mixture.log_likelihoods(frames)

    covariances = np.linalg.inv(mixture.inv_covars.astype(np.float64))
    means = np.einsum("nij,nj->ni", covariances, mixture.means_invcovars)
    for row, frame in zip(found, frames, strict=True):
        expected = definition.log_densities(frame, mixture.weights, means, covariances)
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-3)


def test_likelihood_without_an_end() -> None:
    """A frame far from all Gaussians has no finite likelihood, and gives no warning."""
    mixture = full_mixture(np.random.default_rng(0), 1, 2)

    assert mixture.log_likelihoods(np.full((3, 2), 1e30, np.float32)).tolist() == [[-np.inf]] * 3


@given(seed=seeds)
def test_chosen_posteriors(seed: int) -> None:
    """The posteriors are those of the definition, for thresholds of one's own for each frame."""
    rng = np.random.default_rng(seed)
    logs = (3.0 * rng.standard_normal((5, rng.integers(1, 12)))).astype(np.float32)
    selected, thresholds = int(rng.integers(1, 8)), rng.choice([0.0, 0.025, 0.3, 0.9], 5)
    pairs = list(zip(logs.astype(np.float64), thresholds, strict=True))
    assume(min(definition.margin(row, selected, least) for row, least in pairs) > 1e-4)

    found = pruned_posteriors(logs, selected, thresholds)

    expected = [
        (frame, gaussian, value)
        for frame, (row, least) in enumerate(pairs)
        for gaussian, value in definition.posteriors(row, selected, least)
    ]
    assert found.frames.tolist() == [frame for frame, _, _ in expected]
    assert found.gaussians.tolist() == [gaussian for _, gaussian, _ in expected]
    np.testing.assert_allclose(found.values, [value for _, _, value in expected], rtol=1e-5)


@pytest.mark.parametrize("w", [False, True])
@given(seed=seeds)
def test_ivector_of_an_utterance(w: bool, seed: int) -> None:
    """It is the exact one; if weights depend on it, from at most four expansions around the last.

    (The subspace Gaussian mixture model, eq. 58.)
    """
    rng = np.random.default_rng(seed)
    model = extractor(rng, 4, 3, 2, w)
    features = rng.standard_normal((6, 3)).astype(np.float32)
    values = rng.dirichlet(np.ones(4), 6)
    frames, gaussians = np.divmod(np.arange(24), 4)
    scale = min(0.5, 2.0 / 6.0)

    found = model.ivector(
        features, Posteriors(frames, gaussians, values.ravel()), acoustic_weight=0.5, max_count=2.0
    )

    prior = np.array([3.5, 0.0])
    precision, linear = np.eye(2), prior.copy()
    for frame, row in zip(features.astype(np.float64), values * scale, strict=True):
        for m, inverse, share in zip(
            model.projections, model.inverse_covariances, row, strict=True
        ):
            precision += share * m.T @ inverse @ m
            linear += share * m.T @ inverse @ frame
    expected = np.linalg.solve(precision, linear)
    counts = values.sum(axis=0) * scale
    for _ in range(4 * w):
        weights = [np.exp(each @ expected) for each in model.weight_projections]
        quadratic, first = precision.copy(), linear.copy()
        for each, count, weight in zip(model.weight_projections, counts, weights, strict=True):
            share = counts.sum() * weight / sum(weights)
            quadratic += max(count, share) * np.outer(each, each)
            first += (count - share + max(count, share) * (each @ expected)) * each
        before, expected = expected, np.linalg.solve(quadratic, first)
        if np.linalg.norm(expected - before) < 0.1:
            break
    np.testing.assert_allclose(found, expected - prior, rtol=1e-8, atol=1e-10)


def test_frozen_normalisation() -> None:
    """With a frozen state each frame is normalised by it, and it goes on to the next utterance."""
    rng = np.random.default_rng(0)
    frames = rng.standard_normal((5, 2)).astype(np.float32)
    frozen = np.array([[8.0, 4.0, 4.0], [40.0, 9.0, 0.0]])
    state = OnlineCmvnState(of_all=np.ones((2, 3)), frozen=frozen)
    cmvn = OnlineCmvn(OnlineCmvnOptions(norm_vars=True), state)

    found = cmvn.push(frames)

    by = definition.Normalisation(state.of_all, variances=True)
    expected = [by.by(frame.astype(np.float64), frozen[:, :2] / 4.0) for frame in frames]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(cmvn.state.frozen, frozen)
    assert cmvn.state.speaker[0, -1] == 5.0


def test_arrays_are_not_the_callers() -> None:
    """Statistics that change after a state was made do not change the state."""
    statistics = np.ones((2, 3))

    state = OnlineCmvnState(of_all=statistics)
    statistics[:] = 7.0

    np.testing.assert_array_equal(state.of_all, np.ones((2, 3)))


def test_form_of_files(tmp_path: Path) -> None:
    """Text and binary files have Kaldi's tokens, layouts and precisions."""
    one = IvectorExtractor(
        weight_projections=np.zeros((0, 0)),
        weights=np.array([1.0]),
        projections=np.array([[[1.0, 2.5], [3.0, -4.0]]]),
        inverse_covariances=np.array([[[2.0, 0.5], [0.5, 1.0]]]),
        prior_offset=20.0,
    )
    mixture = FullGmm(
        weights=np.ones(1, np.float32),
        gconsts=np.full(1, -1.5, np.float32),
        means_invcovars=np.array([[1.0, 2.0]], np.float32),
        inv_covars=np.array([[[2.0, 0.5], [0.5, 1.0]]], np.float32),
    )

    one.write(tmp_path / "ie", binary=False)
    mixture.write(tmp_path / "ubm", binary=False)

    assert (tmp_path / "ie").read_bytes() == (
        b"<IvectorExtractor> <w>  [ ]\n<w_vec>  [ 1 ]\n<M> 1  [\n  1 2.5 \n  3 -4 ]\n"
        b"<SigmaInv> [\n2 \n0.5 1 ]\n<IvectorOffset> 20 </IvectorExtractor> "
    )
    assert (tmp_path / "ubm").read_bytes() == (
        b"<FullGMM> \n<GCONSTS>  [ -1.5 ]\n<WEIGHTS>  [ 1 ]\n<MEANS_INVCOVARS>  [\n  1 2 ]\n"
        b"<INV_COVARS> [\n2 \n0.5 1 ]\n</FullGMM> \n"
    )
    one.write(tmp_path / "ie")
    assert (tmp_path / "ie").read_bytes() == (
        b"\0B<IvectorExtractor> <w> DM \4\0\0\0\0\4\0\0\0\0<w_vec> DV \4\1\0\0\0"
        + np.array([1.0]).tobytes()
        + b"<M> \4\1\0\0\0DM \4\2\0\0\0\4\2\0\0\0"
        + np.array([1.0, 2.5, 3.0, -4.0]).tobytes()
        + b"<SigmaInv> DP \4\2\0\0\0"
        + np.array([2.0, 0.5, 1.0]).tobytes()
        + b"<IvectorOffset> \x08"
        + np.array([20.0]).tobytes()
        + b"</IvectorExtractor> "
    )


@pytest.mark.parametrize("binary", [True, False])
def test_files_of_full_mixtures(binary: bool, tmp_path: Path) -> None:
    """A mixture with full covariances is read as it was written, and computes its constants."""
    mixture = full_mixture(np.random.default_rng(0), 3, 2)
    mixture.write(tmp_path / "one", binary=binary)

    read = FullGmm.read(tmp_path / "one")

    read.write(tmp_path / "two", binary=binary)
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()
    frames = np.ones((1, 2), np.float32)
    np.testing.assert_allclose(
        read.log_likelihoods(frames), mixture.log_likelihoods(frames), rtol=1e-4
    )


def test_files_of_extractors_with_weights(tmp_path: Path) -> None:
    """Projections of weights are read and written too."""
    model = extractor(np.random.default_rng(0), 4, 3, 2, w=True)
    model.write(tmp_path / "one")

    read = IvectorExtractor.read(tmp_path / "one")

    np.testing.assert_array_equal(read.weight_projections, model.weight_projections)
    read.write(tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == (tmp_path / "one").read_bytes()


STATE = (
    "<OnlineIvectorExtractorAdaptationState> <CmvnState> <OnlineCmvnState> "
    "<SpeakerCmvnStats>  [ ]\n<GlobalCmvnStats>  [\n  5 2 \n  9 0 ]\n<FrozenState>  [ ]\n"
    "</OnlineCmvnState> <IvectorStats> "
    "<OnlineIvectorEstimationStats> <PriorOffset> 3 <MaxCount> 7 <NumFrames> 4 <QuadraticTerm> [\n"
    "2 ]\n<LinearTerm>  [ 6 ]\n</OnlineIvectorEstimationStats> "
    "</OnlineIvectorExtractorAdaptationState> "
)


def read_state(text: str) -> AdaptationState:
    """A state from its text."""
    return AdaptationState.read(io.BytesIO(text.encode()))


def test_old_files_of_states(tmp_path: Path) -> None:
    """Text of a state comes back; without <MaxCount>, as in old files, there is no maximum."""
    state = read_state(STATE)
    state.write(tmp_path / "state", binary=False)

    assert (tmp_path / "state").read_text() == STATE
    assert (state.max_count, state.num_frames) == (7.0, 4.0)
    assert read_state(STATE.replace("<MaxCount> 7 ", "")).max_count == 0.0
