"""A linear transform of features for neural networks, from statistics by class.

It is that of linear discriminant analysis (R. Fisher, 1936; with the covariance within classes as
unit matrix), except that directions in which classes hardly differ get small.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_tools.training.lda_stats import LdaStats

Doubles = npt.NDArray[np.float64]

SMOOTHING = 1.0e-03
"""The part of the average variance that is added to variances of a singular covariance."""


@attrs.frozen(kw_only=True, eq=False)
class FeatureTransform:
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
