"""Statistics of frames by class, Kaldi's file format for them, and a transform of features.

The transform is that of linear discriminant analysis (R. Fisher, 1936; with the covariance within
classes as unit matrix), except that directions in which classes hardly differ get small.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Nnet3Error, check_limit, files
from nnet3_training import DenseTargets, SparsePosteriors

Doubles = npt.NDArray[np.float64]


SMOOTHING = 1.0e-03
"""The part of the average variance that is added to variances of a singular covariance."""


class LdaStats:
    """Sums over frames, by class.

    Attributes:
        counts: (classes,), the sum of the weights of frames.
        sums: (classes, dim), the weighted sum of frames.
        squares: (dim, dim), the weighted sum of the frames' outer products, over all classes.
    """

    def __init__(self, classes: int, dim: int) -> None:
        """Begins with zeros.

        Raises:
            LimitError: there are more sums than `Limits.rows`.
        """
        check_limit("rows", classes * dim, f"the sums of {classes} classes of {dim} columns")
        self.counts: Doubles = np.zeros(classes)
        self.sums: Doubles = np.zeros((classes, dim))
        self.squares: Doubles = np.zeros((dim, dim))

    def add(
        self, frames: npt.NDArray[np.float32], known: SparsePosteriors, threshold: float,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        """Adds frames, (rows, dim); a weight below the threshold becomes it, or 0, at random."""
        weights = known.weights.astype(np.float64)
        small = (np.abs(weights) < threshold) & (weights != 0.0)
        is_kept = rng.random(len(weights)) * threshold < np.abs(weights)
        weights[small] = np.where(is_kept, np.sign(weights) * threshold, 0.0)[small]
        rows = frames[known.rows].astype(np.float64)
        np.add.at(self.counts, known.classes, weights)
        np.add.at(self.sums, known.classes, weights[:, None] * rows)
        self.squares += rows.T @ (weights[:, None] * rows)

    def write(self, writer: files.Writer) -> None:
        """Writes the statistics in Kaldi's form, with the squares within classes."""
        writer.token("<LDAACCS>")
        writer.token("<VECSIZE>")
        writer.integer(len(self.squares))
        writer.token("<NUMCLASSES>")
        writer.integer(len(self.counts))
        writer.token("<ZERO_ACCS>")
        writer.vector(self.counts.astype(np.float32))
        writer.token("<FIRST_ACCS>")
        writer.matrix(self.sums.astype(np.float32))
        writer.token("<SECOND_ACCS>")
        writer.symmetric_matrix(self.squares - self._squares_of_means())
        writer.token("</LDAACCS>")

    @classmethod
    def read(cls, reader: files.Reader) -> Self:
        """Reads statistics.

        Raises:
            ModelFileError: the file is damaged, or holds something else.
        """
        reader.expect("<LDAACCS>")
        reader.expect("<VECSIZE>")
        dim = reader.integer()
        reader.expect("<NUMCLASSES>")
        classes = reader.integer()
        start = reader.position
        reader.expect("<ZERO_ACCS>")
        counts = reader.double_vector()
        reader.expect("<FIRST_ACCS>")
        sums = reader.double_matrix()
        reader.expect("<SECOND_ACCS>")
        within = reader.symmetric_matrix()
        reader.expect("</LDAACCS>")
        found = counts.shape, sums.shape, within.shape
        if found != ((classes,), (classes, dim), (dim, dim)):
            reader.fail(
                "the sizes of the statistics do not fit each other",
                at=start,
                expected=f"{classes} classes of {dim} columns",
                found=", ".join(map(str, found)),
            )
        stats = cls(classes, dim)
        stats.counts, stats.sums = counts, sums
        stats.squares = within + stats._squares_of_means()
        return stats

    def __add__(self, other: LdaStats) -> LdaStats:
        """The statistics of the frames of both, which have the same classes and columns."""
        both = LdaStats(*self.sums.shape)
        both.counts, both.sums = self.counts + other.counts, self.sums + other.sums
        both.squares = self.squares + other.squares
        return both

    def _squares_of_means(self) -> Doubles:
        """(dim, dim), the weighted sum of the outer products of the means of classes."""
        seen = self.counts != 0.0
        means: Doubles = self.sums[seen] / self.counts[seen, None]
        squares: Doubles = self.sums[seen].T @ means
        return squares

    def covariances(self) -> tuple[Doubles, Doubles, Doubles]:
        """(dim,), the mean of all frames; (dim, dim), covariance within and between classes.

        Raises:
            Nnet3Error: they are not finite.
        """
        total = self.counts.sum()
        mean = self.sums.sum(axis=0) / total
        between = self._squares_of_means() / total - np.outer(mean, mean)
        within = self.squares / total - np.outer(mean, mean) - between
        if not (np.isfinite(between).all() and np.isfinite(within).all()):
            raise Nnet3Error("the covariances of the statistics are not finite")
        return mean, within, between


def as_posteriors(targets: DenseTargets) -> SparsePosteriors:
    """Dense targets, (rows, classes), as weights of the classes whose weight is not 0."""
    values = targets.values
    rows, columns = np.nonzero(values)
    sizes = np.bincount(rows, minlength=len(values))
    return SparsePosteriors(
        dim=values.shape[1],
        splits=np.concatenate(([0], np.cumsum(sizes))),
        classes=columns,
        weights=values[rows, columns],
    )


class FeatureTransform(NamedTuple):
    """A transform and what came up on the way.

    Attributes:
        matrix: (rows, dim) float32, or (rows, dim + 1) with an offset in the last column.
        cholesky: (dim, dim), the lower triangular factor C of the covariance within classes, C C^T.
        between: (dim,), the variance between classes of each row, in falling order; within classes
            it is 1.
        smoothing: The number added to variances, because the covariance was singular; else 0.
        largest: The largest singular value of the matrix before it was limited.
        num_limited: Number of singular values that were limited.
    """

    matrix: npt.NDArray[np.float32]
    cholesky: Doubles
    between: Doubles
    smoothing: float
    largest: float
    num_limited: int


def feature_transform(
    stats: LdaStats,
    *,
    dim: int,
    within_class_factor: float,
    max_singular_value: float,
    remove_offset: bool,
) -> FeatureTransform:
    """Computes the transform.

    With covariances W = C C^T within classes and B between them, and the eigenvectors U and
    eigenvalues d of C^-1 B C^-T, the rows are those of U^T C^-1, by falling d. Within classes they
    have the variance 1 and between them d; row i is multiplied by sqrt((f + d_i) / (1 + d_i)).

    Args:
        stats: The statistics; some frames.
        dim: Number of rows, at most the number of columns of the features.
        within_class_factor: f, the variance within classes for a row of large d; 1 for usual LDA.
        max_singular_value: Larger singular values of the matrix become this; 0 for no limit.
        remove_offset: Whether another column makes the mean of the transformed features 0.
    """
    mean, within, between = stats.covariances()
    smoothing = 0.0
    try:
        cholesky = _cholesky(within)
    except np.linalg.LinAlgError:
        smoothing = SMOOTHING * float(np.trace(within)) / len(within)
        cholesky = _cholesky(within + smoothing * np.eye(len(within)))
    inverse = np.linalg.inv(cholesky)
    vectors, variances, _ = np.linalg.svd(inverse @ between @ inverse.T)
    scales = np.sqrt((within_class_factor + variances) / (1.0 + variances))
    matrix = (scales[:, None] * (vectors.T @ inverse))[:dim]
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    is_large = (singular > max_singular_value) & (max_singular_value > 0.0)
    if is_large.any():
        matrix = left @ (np.where(is_large, max_singular_value, singular)[:, None] * right)
    if remove_offset:
        matrix = np.column_stack([matrix, -matrix @ mean])
    return FeatureTransform(
        matrix=matrix.astype(np.float32),
        cholesky=cholesky,
        between=variances,
        smoothing=smoothing,
        largest=float(singular.max()),
        num_limited=int(is_large.sum()),
    )


def _cholesky(matrix: Doubles) -> Doubles:
    return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
