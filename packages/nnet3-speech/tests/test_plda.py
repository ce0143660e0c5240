"""PLDA and vectors of speakers: Kaldi's files and scores, and the definition by Gaussians.

`plda/` is Kaldi's: `ivector-compute-plda ark:spk2utt ark:vec.txt plda`, and
`ivector-plda-scoring plda ark:vec.txt ark:vec.txt trials scores`, once with
`--normalize-length=false`, on vectors of 30 invented speakers.
"""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_speech import (
    Plda,
    apply_transform,
    estimate_lda,
    normalize_length,
    speaker_means,
)

KALDI = Path(__file__).parent / "plda"
Array = npt.NDArray[np.float64]


def kaldi_vectors() -> dict[str, npt.NDArray[np.float32]]:
    """The vectors by utterance."""
    lines = [line.partition("[") for line in (KALDI / "vec.txt").read_text().splitlines()]
    return {key.strip(): np.float32(rest.strip(" ]").split()) for key, _, rest in lines}


def kaldi_speakers() -> dict[str, str]:
    """The speaker of each utterance."""
    lines = [line.split() for line in (KALDI / "spk2utt").read_text().splitlines()]
    return {utterance: speaker for speaker, *utterances in lines for utterance in utterances}


def random_plda(seed: int, dim: int = 4) -> Plda:
    """A model of any mean, matrix and variances."""
    rng = np.random.default_rng(seed)
    psi = np.sort(rng.exponential(size=dim))[::-1]
    rotation, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
    matrix = rotation * rng.uniform(0.5, 2.0, dim)  # far from singular, for the definition's sake
    return Plda(mean=rng.standard_normal(dim), matrix=matrix, psi=psi)


def covariances(plda: Plda) -> tuple[Array, Array]:
    """W of utterances and B of speakers, in the space of the vectors."""
    inverse = np.linalg.inv(plda.matrix)
    return inverse @ inverse.T, inverse @ np.diag(plda.psi) @ inverse.T


def log_density(values: Array, covariance: Array) -> float:
    """Of a Gaussian without mean."""
    _, log_determinant = np.linalg.slogdet(2.0 * np.pi * covariance)
    return -0.5 * float(log_determinant + values @ np.linalg.solve(covariance, values))


# ---- files ----


def test_file_comes_back(tmp_path: Path) -> None:
    """Kaldi's file is written byte for byte, and its text reads as the same text."""
    plda, text, again = Plda.read(KALDI / "plda"), io.BytesIO(), io.BytesIO()
    plda.write(tmp_path / "plda")
    plda.write(text, binary=False)
    Plda.read(io.BytesIO(text.getvalue())).write(again, binary=False)

    assert plda.dim == 12
    assert (tmp_path / "plda").read_bytes() == (KALDI / "plda").read_bytes()
    assert text.getvalue() == again.getvalue()
    assert text.getvalue().startswith(b"<Plda>  [ 0.777145 0.4816283 0.5883141 ")
    assert text.getvalue().endswith(b" 0.07712622 0.04510998 ]\n</Plda> ")


def test_copies_are_read_only() -> None:
    """What is copied or unpickled cannot be changed either."""
    plda = random_plda(0)

    for twin in (copy.copy(plda), copy.deepcopy(plda), pickle.loads(pickle.dumps(plda))):  # noqa: S301
        np.testing.assert_array_equal(twin.matrix, plda.matrix)
        assert not any(each.flags.writeable for each in (twin.mean, twin.matrix, twin.psi))


# ---- scores ----


@pytest.mark.parametrize("normalize_length", [True, False])
def test_scores_of_kaldi(normalize_length: bool) -> None:
    """Trials have the scores of Kaldi, which has single precision and prints seven digits."""
    name = "scores" if normalize_length else "scores-no-length-normalization"
    vectors = kaldi_vectors()
    lines = [line.split() for line in (KALDI / name).read_text().splitlines()]

    found = Plda.read(KALDI / "plda").score(
        [vectors[enrolled] for enrolled, _, _ in lines],
        [vectors[test] for _, test, _ in lines],
        normalize_length=normalize_length,
    )

    np.testing.assert_allclose(found, [float(score) for _, _, score in lines], rtol=1e-6, atol=1e-6)


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 9))
def test_scores_by_definition(seed: int, count: int) -> None:
    """A score compares the Gaussian of both vectors with the Gaussians of each alone."""
    plda = random_plda(seed)
    within, between = covariances(plda)
    enrolled, test = np.random.default_rng(seed + 1).standard_normal((2, 4))
    of_mean, of_test = between + within / count, between + within
    joint = np.block([[of_mean, between], [between, of_test]])
    both = np.concatenate([enrolled, test])

    found = plda.score(
        plda.mean + enrolled, plda.mean + test, num_utts=count, normalize_length=False
    )

    expected = log_density(both, joint) - log_density(enrolled, of_mean)
    np.testing.assert_allclose(found, expected - log_density(test, of_test), rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 9))
def test_length_normalization(seed: int, count: int) -> None:
    """Squares by the covariance of a mean of utterances sum to dim; or the plain squares do."""
    plda = random_plda(seed)
    within, between = covariances(plda)
    vectors = np.random.default_rng(seed).standard_normal((3, 4))

    rows = plda.transform(vectors, num_utts=count) @ np.linalg.inv(plda.matrix).T
    simple = plda.transform(vectors, simple_length_normalization=True)
    as_they_are = plda.transform(vectors, normalize_length=False, simple_length_normalization=True)

    squares = [row @ np.linalg.solve(between + within / count, row) for row in rows]
    np.testing.assert_allclose(squares, 4.0)
    np.testing.assert_allclose(np.sum(simple**2, axis=1), 4.0)
    np.testing.assert_allclose(as_they_are, (vectors - plda.mean) @ plda.matrix.T)


def test_many_trials_are_each_alone() -> None:
    """Rows, single vectors and numbers of utterances are combined as trials one by one."""
    plda = random_plda(1)
    enrolled, tests = np.random.default_rng(2).standard_normal((2, 5, 4))
    counts = np.array([1, 2, 3, 4, 5])

    rows = plda.score(enrolled, tests, num_utts=counts)
    against_one = plda.score(enrolled, tests[0], num_utts=counts)
    of_speakers, of_tests = plda.transform(enrolled, num_utts=counts), plda.transform(tests)
    all_pairs = plda.log_likelihood_ratio(of_speakers[:, None], of_tests, num_utts=counts[:, None])

    alone = [plda.score(a, b, num_utts=n) for a, b, n in zip(enrolled, tests, counts, strict=True)]
    np.testing.assert_allclose(rows, alone)
    np.testing.assert_allclose(against_one, all_pairs[:, 0])
    np.testing.assert_allclose(rows, np.diag(all_pairs))


def test_vector_without_length() -> None:
    """A vector that is the mean stays the mean, and has a score."""
    plda = random_plda(3)

    assert plda.transform(plda.mean).tolist() == [0.0] * 4
    assert plda.normalization_factor(np.zeros((2, 4))).tolist() == [1.0, 1.0]
    assert np.isfinite(plda.score(plda.mean, np.ones(4)))


# ---- other models ----


def test_smoothing() -> None:
    """Utterances get a part of the speakers' covariance, and speakers keep theirs."""
    plda = random_plda(5)
    within, between = covariances(plda)

    smoothed = covariances(plda.smoothed(0.1))

    np.testing.assert_allclose(smoothed, [within + 0.1 * between, between], atol=1e-12)


@given(seed=st.integers(0, 2**32 - 1))
def test_adaptation(seed: int) -> None:
    """In each direction of excess variance, parts of the excess are added to W and B.

    Directions are the solutions of S v = s (W + B) v; the excess of one is s - 1.
    """
    plda, rng = random_plda(seed), np.random.default_rng(seed)
    vectors = plda.mean + rng.standard_normal((50, 4)) * rng.uniform(0.1, 3.0, 4) + 0.3
    within, between = covariances(plda)
    total, mean = within + between, vectors.mean(axis=0)
    shift = mean - plda.mean
    found = np.cov(vectors.T, bias=True) + 0.5 * np.outer(shift, shift)
    values, directions = np.linalg.eig(np.linalg.solve(total, found))
    excess = np.zeros((4, 4))
    for value, direction in zip(values, directions.T, strict=True):
        image = total @ direction / np.sqrt(direction @ total @ direction)
        excess += max(value - 1.0, 0.0) * np.outer(image, image)

    adapted = plda.adapted(
        vectors, mean_diff_scale=0.5, within_covar_scale=0.2, between_covar_scale=0.6
    )

    np.testing.assert_allclose(adapted.mean, mean)
    expected = np.stack([within + 0.2 * excess, between + 0.6 * excess])
    np.testing.assert_allclose(
        covariances(adapted), expected, rtol=1e-7, atol=1e-8 * np.abs(expected).max()
    )


def test_estimation_of_kaldi() -> None:
    """The model of the vectors is the one that Kaldi estimated; rows have any sign."""
    kaldi, vectors, speakers = Plda.read(KALDI / "plda"), kaldi_vectors(), kaldi_speakers()

    found = Plda.estimate([vectors[key] for key in speakers], list(speakers.values()))

    np.testing.assert_allclose(found.mean, kaldi.mean, rtol=1e-12)
    np.testing.assert_allclose(found.psi, kaldi.psi, rtol=1e-9)
    signs = np.sign(np.sum(found.matrix * kaldi.matrix, axis=1))
    np.testing.assert_allclose(found.matrix * signs[:, None], kaldi.matrix, atol=1e-8)


RNG = np.random.default_rng(0)
SPEAKERS = list("abcabcaabbcddd")
VECTORS = RNG.standard_normal((14, 5)) + np.array([ord(each) for each in SPEAKERS])[:, None] % 7


def test_means_of_speakers() -> None:
    """Each speaker has the mean of the own vectors, and their number."""
    names, means, num_utts = speaker_means([[1, 2], [5, 6], [3, 4]], ["b", "a", "b"])

    assert names == ["a", "b"]
    assert means.tolist() == [[5, 6], [2, 3]]
    assert num_utts.tolist() == [1, 2]


def test_lengths() -> None:
    """Vectors get the length sqrt(dim), or 1, however long they were; zeros stay."""
    vectors = [[3.0, 4.0], [0.0, 0.0], [0.0, -1e200]]

    np.testing.assert_allclose(
        normalize_length(vectors) / np.sqrt(2), [[0.6, 0.8], [0, 0], [0, -1]]
    )
    np.testing.assert_allclose(normalize_length([3.0, 4.0], scaleup=False), [0.6, 0.8])


def test_transforms() -> None:
    """A matrix with one more column than the vectors have dims has an offset in it."""
    matrix = [[1.0, 2.0, 0.5], [0.0, 1.0, -1.0], [2.0, 0.0, 0.0]]

    assert apply_transform([[1, 1, 2], [0, 0, 4]], matrix).tolist() == [[4, -1, 2], [2, -4, 0]]
    assert apply_transform([1, 1], matrix).tolist() == [3.5, 0.0, 2.0]


@pytest.mark.parametrize("factor", [0.0, 0.4, 1.0])
def test_lda(factor: float) -> None:
    """Speakers' covariance becomes diagonal, in falling order, the chosen one the unit matrix."""
    matrix = estimate_lda(VECTORS, SPEAKERS, 3, total_covariance_factor=factor)
    rows = apply_transform(VECTORS, matrix)
    own = {each: rows[np.array(SPEAKERS) == each].mean(axis=0) for each in SPEAKERS}
    means = np.array([own[each] for each in SPEAKERS])
    within = (rows - means).T @ (rows - means) / len(rows)
    between = means.T @ means / len(rows)

    assert matrix.shape == (3, 6)
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(rows.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(within + factor * between, np.eye(3), atol=1e-5)
    np.testing.assert_allclose(between, np.diag(np.diag(between)), atol=1e-4)
    assert (np.diff(np.diag(between)) < 0.0).all()


def test_floor_of_lda() -> None:
    """A direction without variance is scaled as one with the smallest variance allowed."""
    flat = np.column_stack([VECTORS[:, :2], np.zeros(14)])

    assert np.isfinite(estimate_lda(flat, SPEAKERS, 3)).all()
