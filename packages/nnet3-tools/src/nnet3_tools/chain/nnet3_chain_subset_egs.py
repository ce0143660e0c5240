"""nnet3-chain-subset-egs: some of many examples of chain models."""

import click
import numpy as np
from nnet3_tables import ObjectWriter

from nnet3_tools.chain.examples import Entry, check_files, read_entries, write_entry
from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, common_options, log, run_tool

NAME = "nnet3-chain-subset-egs"


@click.command(cls=KaldiCommand)
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER")
@click.option("--n", type=click.IntRange(min=1), default=1000, help="Number of examples.")
@click.option("--srand", default=0, help="Seed of the choice and of the order.")
@boolean_option("--randomize-order", default=True, help="Write them in random order.")
@common_options
def command(egs_in: str, egs_out: str, n: int, srand: int, randomize_order: bool) -> None:
    """Write a random choice of the examples of EGS-RSPECIFIER to EGS-WSPECIFIER.

    Each example is as likely as any other to be chosen. Without --randomize-order, the first N
    keep their places, and each example that is drawn later takes the place of one of them.
    """
    check_files(egs_in, egs_out)
    rng = np.random.default_rng(abs(srand))
    chosen: list[Entry] = []
    count = 0
    for entry in read_entries(egs_in):
        count += 1
        if len(chosen) < n:
            chosen.append(entry)
        elif (place := int(rng.integers(count))) < n:
            chosen[place] = entry
    if randomize_order:
        chosen = [chosen[number] for number in rng.permutation(len(chosen))]
    with ObjectWriter(egs_out) as writer:
        for entry in chosen:
            write_entry(writer, entry)
    log(
        NAME,
        f"Selected a subset of {len(chosen)} out of {count} nnet3+chain training examples ",
    )
    if not count:
        raise click.ClickException(f"'{egs_in}' has no examples")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
