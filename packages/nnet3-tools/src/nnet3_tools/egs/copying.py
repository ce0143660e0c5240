"""Tools that copy examples, changed or not, to one table or to several."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import nnet3_tables
from nnet3_training import egs

from nnet3_tools import cli, streams
from nnet3_tools.egs import forms

if TYPE_CHECKING:
    from nnet3_training import TrainingExample

    Change = Callable[[TrainingExample, egs.CRandom], TrainingExample | None]
    """Changes an example before it is written; returns None to drop it."""

_LARGEST = (2 - 2**-23) * 2.0**127
"""Weights are of single precision."""

COPY_OPTIONS = (
    cli.boolean_option("--random", "Write each example to a random table, not in turn."),
    cli.option(
        "--keep-proportion",
        1.0,
        "Average number of times to write each example; can exceed 1.",
        type=click.FloatRange(0.0, 2**31 - 1),
    ),
    cli.option("--srand", 0, "Seed of the random numbers."),
    cli.option(
        "--frame-shift", 0, "Number of frames by which to move examples, but not i-vectors."
    ),
    cli.option("--left-context", -1, "Number of frames to keep before the output."),
    cli.option("--right-context", -1, "Number of frames to keep after the output."),
    cli.option("--weights", "", "Table of weights by key, for the output."),
    cli.option("--outputs", "", "Table of names by key, for the output."),
)
"""The options of `CopyOptions`."""


class CopyOptions(NamedTuple):
    """How examples are copied.

    Attributes:
        random: Whether the table is drawn for each example.
        keep_proportion: How often an example is written on average.
        srand: Seed of the random draws.
        frame_shift: The number of frames by which to move examples.
        left_context: Number of frames to keep before the output; None for all.
        right_context: Number of frames to keep after it; None for all.
        weights: By key, the factor of the output's weight; None to keep weights.
        outputs: By key, the new name of the output; None to keep names.
        warned: The sides that had less context than wanted, of which a warning told.
    """

    random: bool
    keep_proportion: float
    srand: int
    frame_shift: int
    left_context: int | None
    right_context: int | None
    weights: Mapping[str, str] | None
    outputs: Mapping[str, str] | None
    warned: set[str]

    @classmethod
    def given(cls, *, weights: str, outputs: str, **others: Any) -> CopyOptions:
        """The options as click gives them; reads the tables.

        Raises:
            TableError: a table cannot be read.
        """
        for side in ("left_context", "right_context"):
            if others[side] < 0:
                others[side] = None
        weight_of, output_of = (
            nnet3_tables.read_tokens(name) if name else None for name in (weights, outputs)
        )
        return cls(weights=weight_of, outputs=output_of, warned=set(), **others)

    def missing(self, key: str) -> str | None:
        """What the tables lack of an example; None if they lack nothing."""
        if self.weights is not None and key not in self.weights:
            return f"No weight for example key {key}"
        if self.outputs is not None and key not in self.outputs:
            return f"No new output-name for example key {key}"
        return None

    def relabelled(self, key: str) -> tuple[float | None, str | None]:
        """The factor of the weight of an example, and the new name of its output; None if it stays.

        Raises:
            click.ClickException: the factor is not a number of at least 0.
        """
        name = None if self.outputs is None else self.outputs[key]
        if self.weights is None:
            return None, name
        text = self.weights[key]
        try:
            weight = float(text)
        except ValueError:
            weight = math.nan
        if not 0.0 <= weight <= _LARGEST:
            raise click.ClickException(
                f"the weight of '{key}': expected a number from 0 to {_LARGEST:.8g}, found '{text}'"
            )
        return weight, name

    def cut(self, example: TrainingExample) -> TrainingExample:
        """The example with at most the context to keep; the first that has less gives a warning.

        Raises:
            ExampleError: it has several sequences, or lacks "input" or "output".
        """
        from nnet3_training import egs

        left, right = self.left_context, self.right_context
        if left is None and right is None:
            return example
        for side, wanted, found in zip(
            ("left", "right"), (left, right), egs.input_context(example), strict=True
        ):
            if wanted is not None and found < wanted and side not in self.warned:
                self.warned.add(side)
                cli.warn(
                    f"You requested --{side}-context={wanted}, but example "
                    f"only has {side}-context of {found}: '{example.key}'. No further example "
                    "gives this warning; examples at the ends of utterances may have less context."
                )
        return egs.with_context(example, left=left, right=right)

    def times(self, rng: egs.CRandom) -> int:
        """The number of times to write an example: the proportion, randomly rounded up or down."""
        whole = math.floor(self.keep_proportion)
        return whole + rng.with_probability(self.keep_proportion - whole)


def _copy(
    form: forms.ExampleForm,
    options: CopyOptions,
    change: Change,
    egs_in: str,
    egs_out: tuple[str, ...],
    *,
    says_missing: bool = False,
) -> None:
    """Copies the examples of a table to others, and logs how many.

    Args:
        form: The kind of examples.
        options: How they are copied.
        change: Changes an example before it is written.
        egs_in: The table.
        egs_out: The other tables.
        says_missing: Whether the last log line counts the examples that the tables lack data of.

    Raises:
        NothingDoneError: no example was written.
        TableError, ModelFileError: a table cannot be read or written.
    """
    streams.check_tables([egs_in], *egs_out)
    rng = egs.CRandom(options.srand)  # the same draws as in Kaldi, in the same order
    num_read = num_written = num_missing = 0
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(nnet3_tables.ObjectWriter(name)) for name in egs_out]
        for entry in form.entries(egs_in):
            num_read += 1
            count = options.times(rng)
            missing = options.missing(entry.key)
            if missing is not None:
                cli.warn(missing)
                num_missing += 1
                continue
            for _ in range(count):
                number = rng.rand() if options.random else num_written
                changed = change(entry.value, rng)
                if changed is None:
                    continue
                writer = writers[number % len(writers)]
                if changed is entry.value:
                    form.write_entry(writer, entry)
                else:
                    form.write(writer, changed)
                num_written += 1
        end = f", {num_missing} examples had errors." if says_missing else ""
        read = f"Read {num_read} neural-network training examples"
        cli.log(f"{read}, wrote {num_written}{end}")
        if not num_written:
            raise cli.NothingDoneError("no example was written")


@cli.tool(
    "nnet3-copy-egs",
    "EGS-RSPECIFIER EGS-WSPECIFIER...",
    *COPY_OPTIONS,
    cli.option("--frame", "", "Keep the output of one frame: its t, or 'random'."),
)
def nnet3_copy_egs(egs_in: str, egs_out: tuple[str, ...], frame: str, **given: Any) -> None:
    """Copy the examples of EGS-RSPECIFIER to one table, or by turns to several.

    Unchanged parts are written back byte for byte, unless a table changes from text to binary or
    back.
    """
    from nnet3_training import egs

    options = CopyOptions.given(**given)
    number = _frame(frame)

    def change(example: TrainingExample, rng: egs.CRandom) -> TrainingExample | None:
        weight, name = options.relabelled(example.key)
        if weight is not None and weight != 1.0:
            example = egs.with_weight(example, weight)
        if frame:
            chosen = _random_frame(example, rng) if number is None else number
            one = egs.with_frame(example, chosen)
            if one is None:
                return None
            example = one
        example = egs.shifted(options.cut(example), options.frame_shift)
        return example if name is None else egs.with_output_name(example, name)

    _copy(forms.NNET3, options, change, egs_in, egs_out, says_missing=True)


def _frame(text: str) -> int | None:
    """The t that an option means; None for "random" or ""."""
    if text in ("", "random"):
        return None
    try:
        return int(text)
    except ValueError:
        raise click.ClickException(
            f"--frame: expected a number or 'random', found '{text}'"
        ) from None


def _random_frame(example: TrainingExample, rng: egs.CRandom) -> int:
    """A random t of "output", from its first to its last.

    Raises:
        click.ClickException: the example has no such output, or no rows of it.
    """
    from nnet3_descriptors.indexes import T

    for io in example.outputs:
        if io.name == "output" and len(io.indexes):
            times = io.indexes[:, T]
            return rng.integers(int(times.min()), int(times.max()) + 1)
    raise click.ClickException(f"example '{example.key}' has no rows of 'output'")


@cli.tool("nnet3-chain-copy-egs", "EGS-RSPECIFIER EGS-WSPECIFIER...", *COPY_OPTIONS)
def nnet3_chain_copy_egs(egs_in: str, egs_out: tuple[str, ...], **given: Any) -> None:
    """Copy the examples of EGS-RSPECIFIER to one table, or by turns to several.

    Unchanged parts are written back byte for byte, unless a table changes from text to binary or
    back.
    """
    from nnet3_training import chain

    options = CopyOptions.given(**given)

    def change(example: TrainingExample, rng: egs.CRandom) -> TrainingExample:
        weight, name = options.relabelled(example.key)
        if weight is not None:
            example = chain.with_weight(example, weight)
        if name is not None:
            example = chain.with_output_name(example, name)
        return options.cut(egs.shifted(example, options.frame_shift, step=None))

    _copy(forms.CHAIN, options, change, egs_in, egs_out)


def _number(name: str, help_text: str) -> Callable[[Any], Any]:
    return cli.option(name, 0.0, help_text, shown=True)


@cli.tool(
    "nnet3-egs-augment-image",
    "EGS-RSPECIFIER EGS-WSPECIFIER",
    cli.option("--num-channels", 1, "Channels (colours) of a pixel.", shown=True),
    _number("--horizontal-flip-prob", "How often an image is mirrored, left to right."),
    _number("--horizontal-shift", "Largest shift to the left or right, in widths of the image."),
    _number("--vertical-shift", "Largest shift up or down, in heights of the image."),
    _number("--rotation-degree", "Largest rotation, in degrees, in both directions."),
    _number("--rotation-prob", "How often an image is rotated."),
    cli.option(
        "--fill-mode",
        "nearest",
        "Pixels beyond the borders: nearest, or reflect for the image mirrored there.",
        shown=True,
    ),
    cli.option("--srand", 0, "Seed of the random numbers."),
)
def nnet3_egs_augment_image(egs_in: str, egs_out: str, srand: int, **options: Any) -> None:
    """Copy the examples of EGS-RSPECIFIER, each with its image changed at random.

    The input 'input' has the image: a row for each t, from left to right, and in it the pixels of a
    column of the image, each with its channels side by side.
    """
    augmentation, rng = egs.ImageAugmentation(**options), egs.CRandom(srand)
    streams.check_tables([egs_in], egs_out)
    count = 0
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for entry in forms.NNET3.entries(egs_in):
            forms.NNET3.write(writer, augmentation.changed(entry.value, rng))
            count += 1
        cli.log(f"Perturbed {count} neural-network training images.")
        if not count:
            raise cli.NothingDoneError(f"'{egs_in}' has no examples")
