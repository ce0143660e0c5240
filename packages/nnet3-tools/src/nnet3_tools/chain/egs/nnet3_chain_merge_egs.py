"""nnet3-chain-merge-egs: merges examples of chain models into minibatches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click
import nnet3_tables
import nnet3_training

from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, common_options, log, run_tool

if TYPE_CHECKING:
    from nnet3_training import TrainingExample

NAME = "nnet3-chain-merge-egs"


@click.command(cls=KaldiCommand)
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER")
@click.option(
    "--minibatch-size",
    default="64",
    help="Sizes of minibatches: 64, or 32:64,128, or 128=64/256=16:32 by size of examples.",
)
@boolean_option("--multilingual-eg", help="Name outputs output-LANG, from ?lang=LANG in the keys.")
@boolean_option("--compress", help="Compress the features of minibatches.")
@click.option("--measure-output-frames", hidden=True, expose_value=False)
@click.option("--discard-partial-minibatches", hidden=True, expose_value=False)
@common_options
def command(
    egs_in: str, egs_out: str, minibatch_size: str, multilingual_eg: bool, compress: bool
) -> None:
    """Merge the examples of EGS-RSPECIFIER into minibatches, and write them to EGS-WSPECIFIER."""
    from nnet3_tools.chain.egs.examples import check_files, read_entries, write_example

    check_files(egs_in, egs_out)
    merger = nnet3_training.ExampleMerger(
        nnet3_training.MinibatchRules.parse(minibatch_size), compress=compress
    )
    examples = (entry.value for entry in read_entries(egs_in))
    if multilingual_eg:
        examples = (_with_language(example) for example in examples)
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for merged in merger.merged(examples):
            if multilingual_eg:
                language = merged.outputs[0].name.partition("-")[2]
                merged = attrs.evolve(merged, key=f"{merged.key}?lang={language}")
            write_example(writer, merged)
    for line in merger.lines():
        log(NAME, line)
    if not merger.num_written:
        raise click.ClickException(f"no minibatch was made of the examples of '{egs_in}'")


def _with_language(example: TrainingExample) -> TrainingExample:
    """The example with its output named by the language in its key.

    Raises:
        click.ClickException: The key names none.
    """
    from nnet3_training.chain import with_output_name

    query = example.key.partition("?")[2]
    languages = dict(part.partition("=")[::2] for part in query.split("&"))
    if "lang" not in languages:
        raise click.ClickException(f"expected ?lang=NAME in the key, found '{example.key}'")
    return with_output_name(example, f"output-{languages['lang']}")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
