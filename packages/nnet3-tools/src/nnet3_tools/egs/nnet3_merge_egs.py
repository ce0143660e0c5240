"""nnet3-merge-egs: merges examples into minibatches."""

import click
import nnet3_tables
import nnet3_training

from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, common_options, log, run_tool

NAME = "nnet3-merge-egs"


@click.command(cls=KaldiCommand)
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER")
@click.option(
    "--minibatch-size",
    default="512",
    show_default=True,
    help="Sizes of minibatches: 64, or 32:64,128, or 128=64/256=16:32 by size of examples.",
)
@boolean_option("--compress", help="Compress the features of minibatches.")
@boolean_option("--multilingual-eg", hidden=True, expose_value=False)
@click.option("--measure-output-frames", hidden=True, expose_value=False)
@click.option("--discard-partial-minibatches", hidden=True, expose_value=False)
@common_options
def command(egs_in: str, egs_out: str, minibatch_size: str, compress: bool) -> None:
    """Merge the examples of EGS-RSPECIFIER into minibatches, and write them to EGS-WSPECIFIER."""
    from nnet3_tools.egs.forms import NNET3, check_files

    check_files(egs_in, egs_out)
    merger = nnet3_training.ExampleMerger(
        nnet3_training.MinibatchRules.parse(minibatch_size), compress=compress
    )
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for merged in merger.merged(entry.value for entry in NNET3.entries(egs_in)):
            NNET3.write(writer, merged)
    for line in merger.lines():
        log(NAME, line)
    if not merger.num_written:
        raise click.ClickException(f"no minibatch was made of the examples of '{egs_in}'")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
