"""nnet3-average: averages the parameters and statistics of networks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click
import nnet3_descriptors
from nnet3_descriptors import editing

from nnet3_tools.kaldi_command import (
    ArgumentCountError,
    KaldiCommand,
    boolean_option,
    log,
    run_tool,
    warn,
)
from nnet3_tools.streams import readable, writable

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

NAME = "nnet3-average"
_TOLERANCE = 0.01


def _normalized_weights(text: str, count: int) -> list[float]:
    """Returns weights that add up to 1, from "w1:w2:..." or, if that is empty, all equal."""
    try:
        weights = [float(word) for word in text.split(":")] if text else [1.0] * count
    except ValueError:
        raise click.UsageError(f"--weights must be numbers between colons, got '{text}'") from None
    total = sum(weights)
    if len(weights) != count or total == 0.0 or not math.isfinite(total):
        raise click.UsageError(
            f"--weights must be {count} numbers whose sum is not 0, got '{text}'"
        )
    if text and abs(total - 1.0) > _TOLERANCE:
        warn(NAME, f"Normalizing weights to sum to one, sum was {total:g}")
    return [weight / total for weight in weights]


@click.command(cls=KaldiCommand, ignored={"--num-threads": "threads"})
@click.argument("names", metavar="NNET-IN... NNET-OUT", nargs=-1)
@boolean_option("--binary", default=True, help="Write the network in binary form.")
@click.option(
    "--weights",
    default="",
    metavar="W1:W2:...",
    help="A weight for each network; by default equal.",
)
def command(names: tuple[str, ...], binary: bool, weights: str) -> None:
    """Average the networks in the files NNET-IN... and write the result to NNET-OUT.

    A file may be "-", "command |" or "| command".
    """
    if len(names) < 2:
        raise ArgumentCountError(f"expected two files at least, got {len(names)}")
    *input_names, output_name = names
    total: Nnet | None = None
    for name, weight in zip(
        input_names, _normalized_weights(weights, len(input_names)), strict=True
    ):
        with readable(name) as source:
            nnet = nnet3_descriptors.read_nnet(source)
        terms = ([nnet], [weight]) if total is None else ([total, nnet], [1.0, weight])
        total = editing.weighted_sum(*terms)
    assert total is not None
    with writable(output_name) as target:
        nnet3_descriptors.write_nnet(total, target, binary=binary)
    log(
        NAME,
        f"Averaged parameters of {len(input_names)} neural nets, and wrote to {output_name}",
    )


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
