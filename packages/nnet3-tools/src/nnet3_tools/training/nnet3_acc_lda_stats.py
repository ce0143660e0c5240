"""nnet3-acc-lda-stats: statistics of the outputs of a network by class, to estimate LDA from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import nnet3_descriptors
import nnet3_training
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import BinaryWriter, TextWriter, Writer, write_atomically

from nnet3_tools.chain.options import ObjectiveCommand
from nnet3_tools.egs.forms import form_for
from nnet3_tools.kaldi_command import boolean_option, common_options, log, run_tool
from nnet3_tools.streams import readable, writable

if TYPE_CHECKING:
    from nnet3_training import DenseTargets, SparsePosteriors

NAME = "nnet3-acc-lda-stats"

Doubles = npt.NDArray[np.float64]


class LdaStats:
    """Sums over frames, by class.

    Attributes:
        counts: (classes,), the weight of frames.
        sums: (classes, dim), the weighted sum of frames.
        squares: (dim, dim), the weighted sum of their outer products, over all classes.
    """

    def __init__(self, classes: int, dim: int) -> None:
        self.counts: Doubles = np.zeros(classes)
        self.sums: Doubles = np.zeros((classes, dim))
        self.squares: Doubles = np.zeros((dim, dim))

    def add(
        self, frames: npt.NDArray[np.float32], known: SparsePosteriors, threshold: float,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        """Adds frames, (rows, dim); weights below a threshold become it, or 0, at random."""
        weights = known.weights.astype(np.float64)
        small = (np.abs(weights) < threshold) & (weights != 0.0)
        is_kept = rng.random(len(weights)) * threshold < np.abs(weights)
        weights[small] = np.where(is_kept, np.sign(weights) * threshold, 0.0)[small]
        rows = frames[known.rows].astype(np.float64)
        np.add.at(self.counts, known.classes, weights)
        np.add.at(self.sums, known.classes, weights[:, None] * rows)
        self.squares += rows.T @ (weights[:, None] * rows)

    def write(self, writer: Writer) -> None:
        """Writes them as Kaldi does: the squares are those within classes."""
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
    """Writes the rows of a symmetric matrix up to the diagonal."""
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


@click.command(cls=ObjectiveCommand)
@click.argument("nnet_in", metavar="NNET-IN")
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("stats_out", metavar="STATS-OUT")
@boolean_option("--binary", default=True, help="Write the statistics in binary form.")
@click.option(
    "--rand-prune", type=click.FloatRange(min=0.0), default=0.0, help="Prune weights below this."
)
@common_options
def command(nnet_in: str, egs_in: str, stats_out: str, binary: bool, rand_prune: float) -> None:
    """Sum up what the network NNET-IN gives for examples, by the classes of their output."""
    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    evaluator, stats = nnet3_training.Evaluator(nnet), None
    rng = np.random.default_rng(0)
    count = 0
    for entry in form_for(nnet).entries(egs_in):
        count += 1
        supervision = {io.name: io.supervision for io in entry.value.outputs}.get("output")
        if isinstance(supervision, nnet3_training.DenseTargets):
            supervision = _sparse(supervision)
        if not isinstance(supervision, nnet3_training.SparsePosteriors):
            raise click.ClickException(f"example '{entry.key}' has no output 'output'")
        frames = evaluator.outputs(entry.value)["output"]
        stats = stats or LdaStats(supervision.dim, frames.shape[1])
        stats.add(frames, supervision, rand_prune, rng)
    log(NAME, f"Processed {count} examples.")
    if stats is None or not stats.counts.sum():
        raise click.ClickException("no statistics were accumulated")
    writer: Writer = BinaryWriter() if binary else TextWriter()
    if binary:
        writer.raw(b"\0B")
    stats.write(writer)
    with writable(stats_out) as target:
        if hasattr(target, "write"):
            target.write(b"".join(writer.chunks))
        else:
            write_atomically(target, writer.chunks)
    log(
        NAME,
        f"Accumulated stats, soft frame count = {stats.counts.sum():.6g}.  Wrote to {stats_out}",
    )


def _sparse(targets: DenseTargets) -> SparsePosteriors:
    values = targets.values
    rows, columns = np.nonzero(values)
    sizes = np.bincount(rows, minlength=len(values))
    return nnet3_training.SparsePosteriors(
        dim=values.shape[1],
        splits=np.concatenate(([0], np.cumsum(sizes))),
        classes=columns,
        weights=values[rows, columns],
    )


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
