"""The tools that copy examples, changed or not, to one table or to several."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_tables

from nnet3_tools.kaldi_command import NothingDoneError, boolean_option, log, warn

if TYPE_CHECKING:
    from nnet3_tables import ObjectWriter
    from nnet3_training import TrainingExample
    from nnet3_training.egs import CRandom

    from nnet3_tools.egs.forms import Entry, ExampleForm

    Change = Callable[[TrainingExample, CRandom], TrainingExample | None]


def _frames(given: int) -> int | None:
    """A number of frames; None for a negative one."""
    return None if given < 0 else given


@attrs.frozen(kw_only=True)
class Relabelling:
    """New weights and names of outputs, from tables.

    Attributes:
        weights: By key, the factor of the output's weight; None to keep weights.
        outputs: By key, the new name of the output; None to keep names.
    """

    weights: Mapping[str, str] | None
    outputs: Mapping[str, str] | None

    @classmethod
    def read(cls, weights: str, outputs: str) -> Relabelling:
        """Reads the tables of these names; "" stands for no table.

        Raises:
            TableError: A table cannot be read.
        """
        return cls(
            weights=nnet3_tables.read_tokens(weights) if weights else None,
            outputs=nnet3_tables.read_tokens(outputs) if outputs else None,
        )

    def missing(self, key: str) -> str | None:
        """The data of an example that the tables lack; None if they lack nothing."""
        if self.weights is not None and key not in self.weights:
            return f"No weight for example key {key}"
        if self.outputs is not None and key not in self.outputs:
            return f"No new output-name for example key {key}"
        return None

    def weight(self, key: str) -> float | None:
        """The factor of an example; None if its weight stays.

        Raises:
            click.ClickException: the factor is not a number of at least 0.
        """
        if self.weights is None:
            return None
        text = self.weights[key]
        try:
            weight = float(text)
        except ValueError:
            weight = math.nan
        if not (math.isfinite(weight) and weight >= 0.0):
            raise click.ClickException(
                f"the weight of '{key}': expected a number >= 0, found '{text}'"
            )
        return weight

    def output(self, key: str) -> str | None:
        """The new name of the output of an example; None if it stays."""
        return None if self.outputs is None else self.outputs[key]


@attrs.frozen(kw_only=True)
class CopyOptions:
    """The options that `copy_options` adds.

    Attributes:
        random: Whether the table is drawn for each example.
        keep_proportion: How often an example is written on average.
        srand: Seed of the random draws.
        frame_shift: The number of frames by which to move examples.
        left_context: Number of frames to keep before the output; None for all.
        right_context: Number of frames to keep after it; None for all.
        relabelling: New weights and names of outputs, from tables.
    """

    random: bool
    keep_proportion: float
    srand: int
    frame_shift: int
    left_context: int | None = attrs.field(converter=_frames)
    right_context: int | None = attrs.field(converter=_frames)
    relabelling: Relabelling

    @classmethod
    def given(cls, *, weights: str, outputs: str, **others: Any) -> CopyOptions:
        """The options as click gives them; reads the tables.

        Raises:
            TableError: a table cannot be read.
        """
        return cls(relabelling=Relabelling.read(weights, outputs), **others)

    def relabelled(self, key: str) -> tuple[float | None, str | None]:
        """The factor of the weight of an example, and the new name of its output; None if it stays.

        Raises:
            click.ClickException: the factor is not a number of at least 0.
        """
        return self.relabelling.weight(key), self.relabelling.output(key)


def copy_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of all tools that copy examples; see `CopyOptions.given`."""
    options = (
        boolean_option("--random", help="Write each example to a random table, not in turn."),
        click.option(
            "--keep-proportion",
            type=click.FloatRange(min=0.0),
            default=1.0,
            help="Average number of times to write each example; can exceed 1.",
        ),
        click.option("--srand", default=0, help="Seed of the random numbers."),
        click.option(
            "--frame-shift",
            default=0,
            help="Number of frames by which to move examples, but not i-vectors.",
        ),
        click.option(
            "--left-context", default=-1, help="Number of frames to keep before the output."
        ),
        click.option(
            "--right-context", default=-1, help="Number of frames to keep after the output."
        ),
        click.option("--weights", default="", help="Table of weights by key, for the output."),
        click.option("--outputs", default="", help="Table of names by key, for the output."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@attrs.frozen
class ContextCutter:
    """Cuts the input of examples; the first that has less context than is wanted gives a warning.

    Attributes:
        tool: The name of the tool.
        options: The options, with the context to keep.
    """

    tool: str
    options: CopyOptions
    _warned: set[str] = attrs.field(factory=set)

    def cut(self, example: TrainingExample) -> TrainingExample:
        """The example with at most the context that the options name.

        Raises:
            ExampleError: it has several sequences, or lacks "input" or "output".
        """
        from nnet3_training.egs import input_context, with_context

        left, right = self.options.left_context, self.options.right_context
        if left is None and right is None:
            return example
        for side, wanted, found in zip(
            ("left", "right"), (left, right), input_context(example), strict=True
        ):
            if wanted is not None and found < wanted and side not in self._warned:
                self._warned.add(side)
                warn(
                    self.tool,
                    f"You requested --{side}-context={wanted}, but example "
                    f"only has {side}-context of {found}: '{example.key}'. No further example "
                    "gives this warning; examples at the ends of utterances may have less context.",
                )
        return with_context(example, left=left, right=right)


@attrs.frozen(kw_only=True)
class Copying:
    """A run of such a tool.

    Attributes:
        tool: Its name.
        form: The kind of examples.
        options: The options.
        change: Changes an example before it is written; returns None to drop it.
        says_missing: Whether the last log line counts the examples that the tables lack data of.
    """

    tool: str
    form: ExampleForm
    options: CopyOptions
    change: Change
    says_missing: bool = False

    def run(self, egs_in: str, egs_out: tuple[str, ...]) -> None:
        """Copies the examples of a table to others, and logs how many.

        Raises:
            NothingDoneError: no example was written.
            TableError, ModelFileError: a table cannot be read or written.
        """
        from nnet3_training.egs import CRandom

        from nnet3_tools.egs.forms import check_files

        check_files(egs_in, *egs_out)
        rng = CRandom(self.options.srand)  # the same draws as in Kaldi, in the same order
        num_read = num_written = num_missing = 0
        with contextlib.ExitStack() as stack:
            writers = [stack.enter_context(nnet3_tables.ObjectWriter(name)) for name in egs_out]
            for entry in self.form.entries(egs_in):
                num_read += 1
                count = self._count(rng)
                missing = self.options.relabelling.missing(entry.key)
                if missing is not None:
                    warn(self.tool, missing)
                    num_missing += 1
                    continue
                for _ in range(count):
                    number = rng.rand() if self.options.random else num_written
                    changed = self.change(entry.value, rng)
                    if changed is None:
                        continue
                    self._write(writers[number % len(writers)], entry, changed)
                    num_written += 1
            end = f", {num_missing} examples had errors." if self.says_missing else ""
            read = f"Read {num_read} neural-network training examples"
            log(self.tool, f"{read}, wrote {num_written}{end}")
            if not num_written:
                raise NothingDoneError("no example was written")

    def _count(self, rng: CRandom) -> int:
        """The number of times to write an example: the proportion, randomly rounded up or down."""
        wanted = self.options.keep_proportion
        whole = math.floor(wanted)
        return whole + rng.with_probability(wanted - whole)

    def _write(self, writer: ObjectWriter, entry: Entry, changed: TrainingExample) -> None:
        if changed is entry.value:
            self.form.write_entry(writer, entry)
        else:
            self.form.write(writer, changed)
