"""nnet3-chain-shuffle-egs: examples of chain models in random order."""

import click
import numpy as np
from nnet3_tables import ObjectWriter

from nnet3_tools.chain.examples import Entry, check_files, read_entries, write_entry
from nnet3_tools.kaldi_command import KaldiCommand, common_options, log, run_tool

NAME = "nnet3-chain-shuffle-egs"


@click.command(cls=KaldiCommand)
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER")
@click.option("--srand", default=0, help="Seed of the order.")
@click.option(
    "--buffer-size",
    type=click.IntRange(min=0),
    default=0,
    help="Examples that are held back, from which the next is drawn; 0 for all.",
)
@common_options
def command(egs_in: str, egs_out: str, srand: int, buffer_size: int) -> None:
    """Write the examples of EGS-RSPECIFIER to EGS-WSPECIFIER in random order."""
    check_files(egs_in, egs_out)
    rng = np.random.default_rng(abs(srand))
    waiting: list[Entry] = []
    count = 0
    with ObjectWriter(egs_out) as writer:
        for entry in read_entries(egs_in):
            count += 1
            waiting.append(entry)
            if buffer_size and len(waiting) > buffer_size:
                write_entry(writer, waiting.pop(int(rng.integers(len(waiting)))))
        for number in rng.permutation(len(waiting)):
            write_entry(writer, waiting[number])
    partly = "using a buffer (partial randomization)" if buffer_size else ""
    log(NAME, f"Shuffled order of {count} neural-network training examples {partly}")
    if not count:
        raise click.ClickException(f"'{egs_in}' has no examples")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
