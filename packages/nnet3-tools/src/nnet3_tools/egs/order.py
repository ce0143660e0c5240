"""The tools that shuffle or choose examples, for examples of any kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import nnet3_tables

from nnet3_tools.kaldi_command import KaldiCommand, NothingDoneError, boolean_option, log

if TYPE_CHECKING:
    from nnet3_tools.egs.forms import Entry, ExampleForm


def shuffle_command(tool: str, form: Callable[[], ExampleForm]) -> click.Command:
    """The command of a tool that writes examples in random order.

    Args:
        tool: Its name.
        form: Returns the kind of examples; called when they are read.
    """

    @click.command(cls=KaldiCommand)
    @click.argument("egs_in", metavar="EGS-RSPECIFIER")
    @click.argument("egs_out", metavar="EGS-WSPECIFIER")
    @click.option("--srand", default=0, help="Seed of the order.")
    @click.option(
        "--buffer-size",
        type=click.IntRange(min=0),
        default=0,
        help="Examples in memory, one of which is drawn next; 0 for all.",
    )
    def command(egs_in: str, egs_out: str, srand: int, buffer_size: int) -> None:
        """Write the examples of EGS-RSPECIFIER to EGS-WSPECIFIER in random order."""
        from nnet3_training.egs import CRandom, shuffled

        from nnet3_tools.egs.forms import check_files

        examples = form()
        check_files(egs_in, egs_out)
        rng = CRandom(srand)
        count = 0
        with nnet3_tables.ObjectWriter(egs_out) as writer:
            for entry in shuffled(examples.entries(egs_in), rng, buffer_size):
                count += 1
                examples.write_entry(writer, entry)
            partly = "using a buffer (partial randomization)" if buffer_size else ""
            log(tool, f"Shuffled order of {count} neural-network training examples {partly}")
            if not count:
                raise NothingDoneError(f"'{egs_in}' has no examples")

    return command


def subset_command(tool: str, form: Callable[[], ExampleForm]) -> click.Command:
    """The command of a tool that chooses some of many examples.

    Args:
        tool: Its name.
        form: Returns the kind of examples; called when they are read.
    """

    @click.command(cls=KaldiCommand)
    @click.argument("egs_in", metavar="EGS-RSPECIFIER")
    @click.argument("egs_out", metavar="EGS-WSPECIFIER")
    @click.option("--n", type=click.IntRange(min=1), default=1000, help="Number of examples.")
    @click.option("--srand", default=0, help="Seed of the order.")
    @boolean_option("--randomize-order", default=True, help="Write the examples in random order.")
    def command(egs_in: str, egs_out: str, n: int, srand: int, randomize_order: bool) -> None:
        """Write a random choice of the examples of EGS-RSPECIFIER to EGS-WSPECIFIER.

        Each example is as likely as any other to be chosen. Without --randomize-order, the first N
        keep their places, and each example that is drawn later takes the place of one of them.
        """
        import numpy as np
        from nnet3_training.egs import CRandom

        from nnet3_tools.egs.forms import check_files

        examples = form()
        check_files(egs_in, egs_out)
        rng = np.random.default_rng(abs(srand))
        drawing = CRandom()  # Kaldi uses the seed only for the order
        chosen: list[Entry] = []
        count = 0
        for entry in examples.entries(egs_in):
            count += 1
            if len(chosen) < n:
                chosen.append(entry)
            elif drawing.with_probability(n / count):
                chosen[drawing.integers(0, n)] = entry
        if randomize_order:
            chosen = [chosen[number] for number in rng.permutation(len(chosen))]
        log(tool, f"Selected a subset of {len(chosen)} out of {count} {examples.name} ")
        if not count:
            raise NothingDoneError(f"'{egs_in}' has no examples")
        with nnet3_tables.ObjectWriter(egs_out) as writer:
            for entry in chosen:
                examples.write_entry(writer, entry)

    return command
