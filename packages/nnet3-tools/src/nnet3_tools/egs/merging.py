"""Tools that merge examples into minibatches, shuffle them or choose some, for both kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
import nnet3_tables
import nnet3_training
from nnet3_training import chain, egs

from nnet3_tools import cli, flags, streams
from nnet3_tools.egs import forms

if TYPE_CHECKING:
    Change = Callable[[nnet3_training.TrainingExample], nnet3_training.TrainingExample]

_TABLES = "EGS-RSPECIFIER EGS-WSPECIFIER"

_UNUSED = ("--measure-output-frames", "--discard-partial-minibatches")


def _sizes(usual: str) -> cli.Parameter:
    return cli.option(
        "--minibatch-size",
        usual,
        "Sizes of minibatches: 64, or 32:64,128, or 128=64/256=16:32 by size of examples.",
        shown=True,
    )


_COMPRESS = cli.boolean_option("--compress", "Compress the features of minibatches.")


def _merge(
    form: forms.ExampleForm,
    egs_in: str,
    egs_out: str,
    minibatch_size: str,
    *,
    compress: bool,
    before: Change | None = None,
    after: Change | None = None,
) -> None:
    """Merges the examples of a table, and logs how many.

    Args:
        form: The kind of examples.
        egs_in: The table of examples.
        egs_out: The table of minibatches.
        minibatch_size: The rules for sizes of minibatches.
        compress: Whether to compress the features of minibatches.
        before: Changes an example before it is merged.
        after: Changes a minibatch before it is written.

    Raises:
        NothingDoneError: no minibatch was made.
        TableError, ModelFileError: a table cannot be read or written.
        ExampleError: the rules are not valid, or examples do not fit each other.
    """
    streams.check_tables([egs_in], egs_out)
    merger = nnet3_training.ExampleMerger(
        nnet3_training.MinibatchRules.parse(minibatch_size), compress=compress
    )
    examples: Iterable[nnet3_training.TrainingExample] = (
        entry.value for entry in form.entries(egs_in)
    )
    if before is not None:
        examples = map(before, examples)
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for minibatch in merger.merged(examples):
            form.write(writer, minibatch if after is None else after(minibatch))
        for line in merger.lines():
            cli.log(line)
        if not merger.num_written:
            raise cli.NothingDoneError(f"no minibatch was made of the examples of '{egs_in}'")


@cli.tool(
    "nnet3-merge-egs",
    _TABLES,
    _sizes("256"),
    _COMPRESS,
    ignored=flags.unused(*_UNUSED, "--multilingual-eg"),
)
def nnet3_merge_egs(egs_in: str, egs_out: str, minibatch_size: str, compress: bool) -> None:
    """Merge the examples of EGS-RSPECIFIER into minibatches, and write them to EGS-WSPECIFIER."""
    _merge(forms.NNET3, egs_in, egs_out, minibatch_size, compress=compress)


@cli.tool(
    "nnet3-chain-merge-egs",
    _TABLES,
    _sizes("64"),
    _COMPRESS,
    cli.boolean_option(
        "--multilingual-eg", "Name outputs output-LANG, from ?lang=LANG in the keys."
    ),
    ignored=flags.unused(*_UNUSED),
)
def nnet3_chain_merge_egs(
    egs_in: str, egs_out: str, minibatch_size: str, multilingual_eg: bool, compress: bool
) -> None:
    """Merge the examples of EGS-RSPECIFIER into minibatches, and write them to EGS-WSPECIFIER."""
    _merge(
        forms.CHAIN,
        egs_in,
        egs_out,
        minibatch_size,
        compress=compress,
        before=_with_language if multilingual_eg else None,
        after=_with_language_in_key if multilingual_eg else None,
    )


def _with_language(example: nnet3_training.TrainingExample) -> nnet3_training.TrainingExample:
    """The example with its output named by the language in its key.

    Raises:
        click.ClickException: The key names none.
    """
    query = example.key.partition("?")[2]
    languages = dict(part.partition("=")[::2] for part in query.split("&"))
    if "lang" not in languages:
        raise click.ClickException(f"expected ?lang=NAME in the key, found '{example.key}'")
    return chain.with_output_name(example, f"output-{languages['lang']}")


def _with_language_in_key(
    minibatch: nnet3_training.TrainingExample,
) -> nnet3_training.TrainingExample:
    import attrs

    language = minibatch.outputs[0].name.partition("-")[2]
    return attrs.evolve(minibatch, key=f"{minibatch.key}?lang={language}")


@cli.tool(
    "nnet3-shuffle-egs",
    _TABLES,
    cli.option("--srand", 0, "Seed of the order."),
    cli.option(
        "--buffer-size", 0, "Examples in memory, one of which is drawn next; 0 for all.", least=0
    ),
)
def nnet3_shuffle_egs(egs_in: str, egs_out: str, srand: int, buffer_size: int) -> None:
    """Write the examples of EGS-RSPECIFIER to EGS-WSPECIFIER in random order."""
    form = forms.form_of_tool()
    streams.check_tables([egs_in], egs_out)
    rng = egs.CRandom(srand)
    count = 0
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for entry in egs.shuffled(form.entries(egs_in), rng, buffer_size):
            count += 1
            form.write_entry(writer, entry)
        partly = "using a buffer (partial randomization)" if buffer_size else ""
        cli.log(f"Shuffled order of {count} neural-network training examples {partly}")
        if not count:
            raise cli.NothingDoneError(f"'{egs_in}' has no examples")


@cli.tool(
    "nnet3-subset-egs",
    _TABLES,
    cli.option("--n", 1000, "Number of examples.", least=1),
    cli.option("--srand", 0, "Seed of the order."),
    cli.boolean_option("--randomize-order", "Write the examples in random order.", default=True),
)
def nnet3_subset_egs(egs_in: str, egs_out: str, n: int, srand: int, randomize_order: bool) -> None:
    """Write a random choice of the examples of EGS-RSPECIFIER to EGS-WSPECIFIER.

    Each example is as likely as any other to be chosen. Without --randomize-order, the first N
    keep their places, and each example that is drawn later takes the place of one of them.
    """
    import numpy as np

    form = forms.form_of_tool()
    streams.check_tables([egs_in], egs_out)
    rng = np.random.default_rng(abs(srand))
    drawing = egs.CRandom()  # Kaldi uses the seed only for the order
    chosen: list[forms.Entry] = []
    count = 0
    for entry in form.entries(egs_in):
        count += 1
        if len(chosen) < n:
            chosen.append(entry)
        elif drawing.with_probability(n / count):
            chosen[drawing.integers(0, n)] = entry
    if randomize_order:
        chosen = [chosen[number] for number in rng.permutation(len(chosen))]
    cli.log(f"Selected a subset of {len(chosen)} out of {count} {form.name} ")
    if not count:
        raise cli.NothingDoneError(f"'{egs_in}' has no examples")
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for entry in chosen:
            form.write_entry(writer, entry)


nnet3_chain_shuffle_egs = nnet3_shuffle_egs.named("nnet3-chain-shuffle-egs")
nnet3_chain_subset_egs = nnet3_subset_egs.named("nnet3-chain-subset-egs")
