"""Statistics of frames by class for LDA, and Kaldi's file format for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import Writer
from nnet3_training import DenseTargets, SparsePosteriors

Doubles = npt.NDArray[np.float64]


class LdaStats:
    """Sums over frames, by class.

    Attributes:
        counts: (classes,), the sum of the weights of frames.
        sums: (classes, dim), the weighted sum of frames.
        squares: (dim, dim), the weighted sum of the frames' outer products, over all classes.
    """

    def __init__(self, classes: int, dim: int) -> None:
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

    def write(self, writer: Writer) -> None:
        """Writes the statistics in Kaldi's form, with the squares within classes."""
        seen = self.counts != 0.0
        means = self.sums[seen] / self.counts[seen, None]
        within = self.squares - self.sums[seen].T @ means
        writer.token("<LDAACCS>")
        writer.token("<VECSIZE>")
        writer.integer(len(within))
        writer.token("<NUMCLASSES>")
        writer.integer(len(self.counts))
        writer.token("<ZERO_ACCS>")
        writer.vector(self.counts.astype(np.float32))
        writer.token("<FIRST_ACCS>")
        writer.matrix(self.sums.astype(np.float32))
        writer.token("<SECOND_ACCS>")
        _write_symmetric(writer, within)
        writer.token("</LDAACCS>")


def _write_symmetric(writer: Writer, matrix: Doubles) -> None:
    """Writes a symmetric matrix, each row up to the diagonal."""
    lower = matrix[np.tril_indices(len(matrix))].astype("<f4")
    if writer.binary:
        writer.token("FP")
        writer.integer(len(matrix))
        writer.raw(lower.tobytes())
        return
    writer.raw(b" [")
    for row in range(len(matrix)):
        writer.raw(b"\n")
        for value in matrix[row, : row + 1].tolist():
            writer.real(value)
    writer.raw(b"]\n")


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
