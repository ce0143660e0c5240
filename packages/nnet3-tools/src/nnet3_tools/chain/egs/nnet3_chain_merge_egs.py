"""nnet3-chain-merge-egs: merges examples of chain models into minibatches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click

from nnet3_tools.egs.merging import IGNORED, merge, merge_options
from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, run_tool

if TYPE_CHECKING:
    from nnet3_training import TrainingExample

NAME = "nnet3-chain-merge-egs"


@click.command(cls=KaldiCommand, ignored=IGNORED)
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER")
@merge_options(minibatch_size="64")
@boolean_option("--multilingual-eg", help="Name outputs output-LANG, from ?lang=LANG in the keys.")
def command(
    egs_in: str, egs_out: str, minibatch_size: str, multilingual_eg: bool, compress: bool
) -> None:
    """Merge the examples of EGS-RSPECIFIER into minibatches, and write them to EGS-WSPECIFIER."""
    from nnet3_tools.chain.egs.examples import CHAIN

    merge(
        NAME,
        CHAIN,
        egs_in,
        egs_out,
        minibatch_size,
        compress=compress,
        before=_with_language if multilingual_eg else None,
        after=_with_language_in_key if multilingual_eg else None,
    )


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


def _with_language_in_key(minibatch: TrainingExample) -> TrainingExample:
    language = minibatch.outputs[0].name.partition("-")[2]
    return attrs.evolve(minibatch, key=f"{minibatch.key}?lang={language}")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
