"""The tools that merge examples into minibatches, for examples of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
import nnet3_tables
import nnet3_training

from nnet3_tools.ignored_options import unused
from nnet3_tools.kaldi_command import NothingDoneError, boolean_option, log

if TYPE_CHECKING:
    from nnet3_training import TrainingExample

    from nnet3_tools.egs.forms import ExampleForm

    Change = Callable[[TrainingExample], TrainingExample]


IGNORED = unused("--measure-output-frames", "--discard-partial-minibatches")


def merge_options(minibatch_size: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the options of these tools, with a default for the sizes of minibatches."""
    options = (
        click.option(
            "--minibatch-size",
            default=minibatch_size,
            show_default=True,
            help="Sizes of minibatches: 64, or 32:64,128, or 128=64/256=16:32 by size of examples.",
        ),
        boolean_option("--compress", help="Compress the features of minibatches."),
    )

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def merge(
    tool: str,
    form: ExampleForm,
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
        tool: Name of the tool.
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
    from nnet3_tools.egs.forms import check_files

    check_files(egs_in, egs_out)
    merger = nnet3_training.ExampleMerger(
        nnet3_training.MinibatchRules.parse(minibatch_size), compress=compress
    )
    examples: Iterable[TrainingExample] = (entry.value for entry in form.entries(egs_in))
    if before is not None:
        examples = map(before, examples)
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for minibatch in merger.merged(examples):
            form.write(writer, minibatch if after is None else after(minibatch))
        for line in merger.lines():
            log(tool, line)
        if not merger.num_written:
            raise NothingDoneError(f"no minibatch was made of the examples of '{egs_in}'")
