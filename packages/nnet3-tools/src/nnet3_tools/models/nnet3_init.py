"""nnet3-init: makes a network from config lines, or adds them to one."""

import click
import nnet3_descriptors

from nnet3_tools.kaldi_command import (
    ArgumentCountError,
    KaldiCommand,
    boolean_option,
    log,
    run_tool,
)
from nnet3_tools.streams import read_text, readable, understanding, writable

NAME = "nnet3-init"
_SEEDS = 2**32
"""Seeds are unsigned; as in C, a negative one counts from the largest down."""


@click.command(cls=KaldiCommand)
@click.argument("names", metavar="[NNET-IN] CONFIG NNET-OUT", nargs=-1)
@boolean_option("--binary", default=True, help="Write the network in binary form.")
@click.option("--srand", default=0, metavar="SEED", help="Seed of the initial parameters.")
def command(names: tuple[str, ...], binary: bool, srand: int) -> None:
    """Make a network from the lines of CONFIG, or add them to NNET-IN.

    A file may be "-", "command |" or "| command".
    """
    import numpy as np

    if len(names) not in (2, 3):
        raise ArgumentCountError(f"expected two or three files, got {len(names)}")
    *base_names, config_name, output_name = names
    base = None
    for base_name in base_names:
        with readable(base_name) as source:
            base = nnet3_descriptors.read_nnet(source)
        log(NAME, f"Read raw neural net from {base_name}")
    text, rng = read_text(config_name), np.random.default_rng(srand % _SEEDS)
    with understanding(config_name):
        nnet = nnet3_descriptors.parse_config(text, base, rng=rng)
    with writable(output_name) as target:
        nnet3_descriptors.write_nnet(nnet, target, binary=binary)
    log(NAME, f"Initialized raw neural net and wrote it to {output_name}")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
