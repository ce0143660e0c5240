"""nnet3-copy-egs: copies examples, changed as the options say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nnet3_tools.egs.copying import ContextCutter, Copying, CopyOptions, copy_options
from nnet3_tools.kaldi_command import KaldiCommand, run_tool

if TYPE_CHECKING:
    from nnet3_training import TrainingExample
    from nnet3_training.egs import CRandom

NAME = "nnet3-copy-egs"


@click.command(cls=KaldiCommand)
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER...", nargs=-1, required=True)
@copy_options
@click.option("--frame", default="", help="Keep the output of one frame: its t, or 'random'.")
def command(
    egs_in: str,
    egs_out: tuple[str, ...],
    frame: str,
    **given: Any,
) -> None:
    """Copy the examples of EGS-RSPECIFIER to one table, or by turns to several.

    Unchanged parts are written back byte for byte, unless a table changes from text to binary or
    back.
    """
    from nnet3_training.egs import shifted, with_frame, with_output_name, with_weight

    from nnet3_tools.egs.forms import NNET3

    options = CopyOptions.given(**given)
    context = ContextCutter(NAME, options)
    number = _frame(frame)

    def change(example: TrainingExample, rng: CRandom) -> TrainingExample | None:
        weight, name = options.relabelled(example.key)
        if weight is not None and weight != 1.0:
            example = with_weight(example, weight)
        if frame:
            chosen = _random_frame(example, rng) if number is None else number
            one = with_frame(example, chosen)
            if one is None:
                return None
            example = one
        example = shifted(context.cut(example), options.frame_shift)
        return example if name is None else with_output_name(example, name)

    Copying(tool=NAME, form=NNET3, options=options, change=change, says_missing=True).run(
        egs_in, egs_out
    )


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


def _random_frame(example: TrainingExample, rng: CRandom) -> int:
    """A random t of "output", from its first to its last.

    Raises:
        click.ClickException: the example has no such output.
    """
    from nnet3_descriptors.indexes import T

    for io in example.outputs:
        if io.name == "output":
            times = io.indexes[:, T]
            return rng.integers(int(times.min()), int(times.max()) + 1)
    raise click.ClickException(f"example '{example.key}' has no 'output'")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
