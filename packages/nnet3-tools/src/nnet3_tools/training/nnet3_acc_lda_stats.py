"""nnet3-acc-lda-stats: sums up the outputs of a network by class, for LDA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import nnet3_descriptors
import nnet3_tables
import nnet3_training

from nnet3_tools.ignored_options import OF_OBJECTIVES
from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, log, run_tool
from nnet3_tools.streams import readable

if TYPE_CHECKING:
    from nnet3_descriptors.files import Writer

NAME = "nnet3-acc-lda-stats"


@click.command(cls=KaldiCommand, ignored=OF_OBJECTIVES)
@click.argument("nnet_in", metavar="NNET-IN")
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("stats_out", metavar="STATS-OUT")
@boolean_option("--binary", default=True, help="Write the statistics in binary form.")
@click.option(
    "--rand-prune", type=click.FloatRange(min=0.0), default=0.0, help="Prune weights below this."
)
def command(nnet_in: str, egs_in: str, stats_out: str, binary: bool, rand_prune: float) -> None:
    """Sum up the outputs of the network NNET-IN on examples, by the classes of their labels."""
    import numpy as np
    from nnet3_descriptors.files import BinaryWriter, TextWriter

    from nnet3_tools.egs.forms import form_for
    from nnet3_tools.training.lda_stats import LdaStats, as_posteriors

    with readable(nnet_in) as source:
        nnet = nnet3_descriptors.read_nnet(source)
    evaluator, stats = nnet3_training.Evaluator(nnet), None
    rng = np.random.default_rng(0)
    count = 0
    for entry in form_for(nnet).entries(egs_in):
        count += 1
        supervision = {io.name: io.supervision for io in entry.value.outputs}.get("output")
        if isinstance(supervision, nnet3_training.DenseTargets):
            supervision = as_posteriors(supervision)
        if not isinstance(supervision, nnet3_training.SparsePosteriors):
            raise click.ClickException(f"example '{entry.key}' has no output 'output'")
        frames = evaluator.outputs(entry.value)["output"]
        stats = stats or LdaStats(supervision.dim, frames.shape[1])
        stats.add(frames, supervision, rand_prune, rng)
    log(NAME, f"Processed {count} examples.")
    if stats is None or not stats.counts.sum():
        raise click.ClickException(f"'{egs_in}' has no examples")
    writer: Writer = BinaryWriter() if binary else TextWriter()
    if binary:
        writer.raw(b"\0B")
    stats.write(writer)
    with nnet3_tables.opened_to_write(stats_out) as file:
        file.writelines(writer.chunks)
    log(
        NAME,
        f"Accumulated stats, soft frame count = {stats.counts.sum():.6g}.  Wrote to {stats_out}",
    )


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
