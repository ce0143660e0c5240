"""Vectors of utterances, such as i-vectors and x-vectors, on the way to scores.

The back ends of Kaldi's recipes subtract the mean of all vectors (which takes no function here),
transform them by linear discriminant analysis (LDA), normalise their length, and average those of a
speaker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from nnet3_descriptors.values import is_integer

from nnet3_speech.errors import SpeechError
from nnet3_speech.values import check_finite, computing, expect_factor, expect_positive, numbers

Array = npt.NDArray[np.float64]


def speaker_means(
    vectors: npt.ArrayLike, speakers: Sequence[str]
) -> tuple[list[str], Array, npt.NDArray[np.int64]]:
    """The means of the vectors of each speaker (ivector-mean).

    Args:
        vectors: (n, dim), a vector of each utterance.
        speakers: The speaker of each utterance, n.

    Returns:
        The names of the speakers, sorted; (speakers, dim), their means; and (speakers,), the
        number of utterances of each, which PLDA takes as `num_utts`.

    Raises:
        SpeechError: there are no vectors, they are not finite, or their number is another.
    """
    return grouped(vectors, speakers)[:3]


def normalize_length(vectors: npt.ArrayLike, *, scaleup: bool = True) -> Array:
    """Scales vectors to one length (ivector-normalize-length). A vector of zeros stays as it is.

    Args:
        vectors: (n, dim) or (dim,).
        scaleup: Whether the length becomes sqrt(dim), which vectors with a variance of 1 have on
            average; else 1.

    Raises:
        SpeechError: they are no such array, or not finite.
    """
    rows = rows_of(vectors)
    largest = np.abs(rows).max(axis=-1, keepdims=True)  # so that no square overflows
    rows /= np.where(largest > 0.0, largest, 1.0)
    lengths = np.sqrt(np.sum(rows**2, axis=-1, keepdims=True))
    rows *= (np.sqrt(rows.shape[-1]) if scaleup else 1.0) / np.where(lengths > 0.0, lengths, 1.0)
    return rows


def apply_transform(vectors: npt.ArrayLike, matrix: npt.ArrayLike) -> Array:
    """Multiplies vectors by a matrix, such as an LDA's `transform.mat` (ivector-transform).

    Args:
        vectors: (n, dim) or (dim,).
        matrix: (new dim, dim); or (new dim, dim + 1) with an offset in the last column.

    Returns:
        (n, new dim) or (new dim,).

    Raises:
        SpeechError: the matrix has another number of columns, or an array is not finite.
    """
    weights, rows = rows_of(matrix, what="matrix"), rows_of(vectors)
    dim = rows.shape[-1]
    if weights.ndim != 2 or weights.shape[1] - dim not in (0, 1):
        raise SpeechError(
            f"transform of vectors of {dim} dims: expected a matrix of {dim} or {dim + 1} "
            f"columns, found the shape {weights.shape}"
        )
    with computing("transform"):
        return check_finite(rows @ weights[:, :dim].T + weights[:, dim:].sum(axis=1), "transform")


def estimate_lda(
    vectors: npt.ArrayLike,
    speakers: Sequence[str],
    dim: int = 100,
    *,
    total_covariance_factor: float = 0.0,
    covariance_floor: float = 1e-6,
) -> npt.NDArray[np.float32]:
    """Estimates a transform that keeps what tells speakers apart (ivector-compute-lda).

    Args:
        vectors: (n, columns), vectors of utterances, at least as many as columns.
        speakers: The speaker of each, n; at least one has more than one utterance.
        dim: Dims to keep.
        total_covariance_factor: The covariance that becomes the unit matrix: 0 for that within
            speakers, 1 for that of all vectors, numbers between for a mixture.
        covariance_floor: Its smallest eigenvalue, relative to the largest.

    Returns:
        (dim, columns + 1), which also subtracts the mean of the vectors.

    Raises:
        SpeechError: there are too few vectors, or they do not vary within speakers; or `dim` is
            not between 1 and the columns, or another number out of range.
    """
    rows = rows_of(vectors)
    mean = rows.mean(axis=0)
    _, means, counts, rest = grouped(rows - mean, speakers)
    columns = len(mean)
    if not is_integer(dim) or not 1 <= dim <= columns:
        raise SpeechError(f"LDA: expected to keep 1 to {columns} dims, found {dim}")
    expect_factor(total_covariance_factor, "total_covariance_factor", 1.0)
    expect_positive(covariance_floor, "covariance_floor")
    expect_factor(covariance_floor, "covariance_floor", 1.0)
    if len(rows) < columns or len(rows) == len(means):
        raise SpeechError(
            f"LDA of {columns} columns: expected at least as many vectors, and a speaker with more "
            f"than one, found {len(rows)} of {len(means)} speakers"
        )
    with computing("LDA"):
        within = rest.T @ rest / len(rows)
        between = (means * counts[:, None]).T @ means / len(rows)
        values, directions = np.linalg.eigh(within + total_covariance_factor * between)
        check_varying(max(values[-1], 0.0), np.abs(rows).max(), "LDA")
        floored = np.maximum(values, covariance_floor * values[-1])
        to_unit = (directions / np.sqrt(floored)).T
        _, kept = np.linalg.eigh(to_unit @ between @ to_unit.T)
        linear = (kept[:, ::-1][:, :dim].T @ to_unit).astype(np.float32)
        offset = -(linear @ mean)
        return np.column_stack([linear, offset]).astype(np.float32)


def rows_of(vectors: npt.ArrayLike, dim: int | None = None, what: str = "vectors") -> Array:
    """The vectors of a caller, copied, in double precision.

    Args:
        vectors: (n, dim) or (dim,).
        dim: Their size; None for any.
        what: Their name in messages.

    Raises:
        SpeechError: they are no such array, have another size, or are not finite.
    """
    size = "dim" if dim is None else dim
    return numbers(vectors, what, ("n", size), (size,), copy=True)


_LEAST_DEVIATION = 1e-10


def check_varying(variance: float, size: float, what: str) -> None:
    """Checks that vectors differ by more than rounding.

    Args:
        variance: How much they vary within speakers.
        size: Their largest element.
        what: What is estimated, for the message.

    Raises:
        SpeechError: they do not.
    """
    if not np.sqrt(variance) > _LEAST_DEVIATION * size:
        raise SpeechError(f"{what}: the vectors do not vary within speakers")


def grouped(
    vectors: npt.ArrayLike, speakers: Sequence[str]
) -> tuple[list[str], Array, npt.NDArray[np.int64], Array]:
    """What `speaker_means` returns, and (n, dim), the vectors without their speakers' means.

    Raises:
        SpeechError: see `speaker_means`.
    """
    rows = rows_of(vectors)
    try:
        given = np.asarray(speakers, dtype=str)
    except ValueError as error:  # ragged, or bytes beyond ASCII
        raise SpeechError(f"speakers: expected a name of each utterance: {error}") from error
    if rows.ndim != 2 or given.shape != rows.shape[:1] or not len(rows):
        raise SpeechError(
            "expected a vector and a speaker of each utterance, found vectors of the shape "
            f"{rows.shape} and speakers of the shape {given.shape}"
        )
    names, places, counts = np.unique(given, return_inverse=True, return_counts=True)
    sums = np.zeros((len(names), rows.shape[1]))
    with computing("means of speakers"):
        np.add.at(sums, places, rows)
        means = sums / counts[:, None]
        return names.tolist(), means, counts, rows - means[places]
