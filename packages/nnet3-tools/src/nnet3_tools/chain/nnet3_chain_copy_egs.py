"""nnet3-chain-copy-egs: copies examples of chain models, changed as the options say."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping

import attrs
import click
import numpy as np
from nnet3_tables import ObjectWriter, read_tokens
from nnet3_training import TrainingExample
from nnet3_training.chain import shifted, with_context, with_output_name, with_weight

from nnet3_tools.chain.examples import Entry, check_files, read_entries, write_entry, write_example
from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, common_options, log, run_tool

NAME = "nnet3-chain-copy-egs"


@attrs.frozen(kw_only=True)
class Changes:
    """What is changed of examples.

    Attributes:
        frame_shift: By how many frames inputs move.
        left_context: Frames of the input before the output; negative for all.
        right_context: Frames after it; negative for all.
        weights: By key, what the weight of the output is multiplied by; None if it stays.
        outputs: By key, the name of the output; None if it stays.
    """

    frame_shift: int
    left_context: int
    right_context: int
    weights: Mapping[str, str] | None
    outputs: Mapping[str, str] | None

    def missing(self, key: str) -> str | None:
        """What is not known of an example that has to be; None if nothing."""
        if self.weights is not None and key not in self.weights:
            return f"No weight for example key {key}"
        if self.outputs is not None and key not in self.outputs:
            return f"No new output-name for example key {key}"
        return None

    def of(self, example: TrainingExample) -> TrainingExample:
        """The example, changed; itself if nothing changes.

        Raises:
            ExampleError: it has not the input or output that is to be changed.
        """
        if self.weights is not None:
            example = with_weight(example, _weight(example.key, self.weights[example.key]))
        if self.outputs is not None:
            example = with_output_name(example, self.outputs[example.key])
        example = shifted(example, self.frame_shift)
        left, right = (None if n < 0 else n for n in (self.left_context, self.right_context))
        return with_context(example, left=left, right=right)


def _weight(key: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight >= 0.0):
        raise click.ClickException(f"the weight of '{key}': expected a number >= 0, found '{text}'")
    return weight


@click.command(cls=KaldiCommand)
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER...", nargs=-1, required=True)
@boolean_option("--random", help="Write each example to a random table, not to them in turn.")
@click.option(
    "--keep-proportion",
    type=click.FloatRange(min=0.0),
    default=1.0,
    help="How often an example is written on average, which may be more than once.",
)
@click.option("--srand", default=0, help="Seed of what is drawn.")
@click.option("--frame-shift", default=0, help="Move inputs by so many frames, i-vectors not.")
@click.option("--left-context", default=-1, help="Keep so many frames before the output.")
@click.option("--right-context", default=-1, help="Keep so many frames after the output.")
@click.option("--weights", default="", help="Table of weights by key, which multiply the output's.")
@click.option("--outputs", default="", help="Table of names by key, for the output.")
@common_options
def command(
    egs_in: str,
    egs_out: tuple[str, ...],
    random: bool,
    keep_proportion: float,
    srand: int,
    frame_shift: int,
    left_context: int,
    right_context: int,
    weights: str,
    outputs: str,
) -> None:
    """Copy the examples of EGS-RSPECIFIER to one table, or by turns to several.

    What is not changed is written as it was, byte for byte, unless it is to be in text or in binary
    and was not.
    """
    check_files(egs_in, *egs_out)
    changes = Changes(
        frame_shift=frame_shift,
        left_context=left_context,
        right_context=right_context,
        weights=read_tokens(weights) if weights else None,
        outputs=read_tokens(outputs) if outputs else None,
    )
    rng = np.random.default_rng(abs(srand))
    num_read = num_written = 0
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(ObjectWriter(name)) for name in egs_out]
        for entry in read_entries(egs_in):
            num_read += 1
            missing = changes.missing(entry.key)
            if missing is not None:
                click.echo(f"WARNING ({NAME}) {missing}", err=True)
                continue
            changed = changes.of(entry.value)
            for _ in range(_count(keep_proportion, rng)):
                number = int(rng.integers(len(writers))) if random else num_written % len(writers)
                _write(writers[number], entry, changed)
                num_written += 1
    log(NAME, f"Read {num_read} neural-network training examples, wrote {num_written}")
    if not num_written:
        raise click.ClickException("no example was written")


def _count(proportion: float, rng: np.random.Generator) -> int:
    """How often an example is written: a number of this average, rounded up or down."""
    whole = math.floor(proportion)
    return whole + (bool(rng.random() < proportion - whole) if proportion > whole else 0)


def _write(writer: ObjectWriter, entry: Entry, changed: TrainingExample) -> None:
    if changed is entry.value:
        write_entry(writer, entry)
    else:
        write_example(writer, changed)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
