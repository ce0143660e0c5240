"""nnet3-egs-augment-image: copies examples of images, each changed at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import nnet3_tables

from nnet3_tools.kaldi_command import KaldiCommand, NothingDoneError, log, run_tool

NAME = "nnet3-egs-augment-image"


def _number(name: str, help_text: str) -> Callable[[Any], Any]:
    return click.option(name, default=0.0, show_default=True, help=help_text)


@click.command(cls=KaldiCommand)
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER")
@click.option("--num-channels", default=1, show_default=True, help="Channels (colours) of a pixel.")
@_number("--horizontal-flip-prob", "How often an image is mirrored, left to right.")
@_number("--horizontal-shift", "Largest shift to the left or right, in widths of the image.")
@_number("--vertical-shift", "Largest shift up or down, in heights of the image.")
@_number("--rotation-degree", "Largest rotation, in degrees, in both directions.")
@_number("--rotation-prob", "How often an image is rotated.")
@click.option(
    "--fill-mode",
    default="nearest",
    show_default=True,
    help="Pixels beyond the borders: nearest, or reflect for the image mirrored there.",
)
@click.option("--srand", default=0, help="Seed of the random numbers.")
def command(egs_in: str, egs_out: str, srand: int, **options: Any) -> None:
    """Copy the examples of EGS-RSPECIFIER, each with its image changed at random.

    The input 'input' has the image: a row for each t, from left to right, and in it the pixels of a
    column of the image, each with its channels side by side.
    """
    from nnet3_training.egs import CRandom, ImageAugmentation

    from nnet3_tools.egs.forms import NNET3, check_files

    augmentation, rng = ImageAugmentation(**options), CRandom(srand)
    check_files(egs_in, egs_out)
    count = 0
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for entry in NNET3.entries(egs_in):
            NNET3.write(writer, augmentation.changed(entry.value, rng))
            count += 1
        log(NAME, f"Perturbed {count} neural-network training images.")
        if not count:
            raise NothingDoneError(f"'{egs_in}' has no examples")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
