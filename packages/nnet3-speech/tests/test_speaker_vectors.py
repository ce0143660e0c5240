"""Means by speaker, LDA and length normalisation."""

from __future__ import annotations

import numpy as np
import pytest
from nnet3_speech import (
    apply_transform,
    estimate_lda,
    normalize_length,
    speaker_means,
)

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
