"""nnet3-chain-normalize-egs: gives the paths of examples the weights of the normalization FST."""

from __future__ import annotations

import attrs
import click
import nnet3_tables
import nnet3_training

from nnet3_tools.kaldi_command import KaldiCommand, NothingDoneError, log, run_tool, warn
from nnet3_tools.streams import readable

NAME = "nnet3-chain-normalize-egs"


@click.command(cls=KaldiCommand)
@click.argument("fst_in", metavar="NORMALIZATION-FST")
@click.argument("egs_in", metavar="EGS-RSPECIFIER")
@click.argument("egs_out", metavar="EGS-WSPECIFIER")
@click.option(
    "--normalization-fst-scale", default=1.0, help="Multiplies the costs of the FST.", type=float
)
def command(fst_in: str, egs_in: str, egs_out: str, normalization_fst_scale: float) -> None:
    """Give the paths of the examples of EGS-RSPECIFIER the weights of NORMALIZATION-FST.

    This is for examples that nnet3-chain-get-egs made without such an FST, and for no others.
    """
    from nnet3_training.chain.graphs import Normalization

    from nnet3_tools.chain.egs.examples import CHAIN
    from nnet3_tools.egs.forms import check_files

    with readable(fst_in) as source:
        normalization = Normalization(nnet3_training.read_fst(source), normalization_fst_scale)
    check_files(egs_in, egs_out)
    written = failed = 0
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for entry in CHAIN.entries(egs_in):
            example = entry.value
            if len(example.outputs) != 1:
                raise click.ClickException(
                    f"example '{entry.key}': expected one output, found {len(example.outputs)}"
                )
            [output] = example.outputs
            assert isinstance(output.supervision, nnet3_training.ChainSupervision)
            found = normalization.added(output.supervision)
            if found is None:
                warn(
                    NAME,
                    f"For example {entry.key}, FST was empty after composing "
                    "with normalization FST.",
                )
                failed += 1
                continue
            changed = attrs.evolve(output, supervision=found)
            CHAIN.write(writer, attrs.evolve(example, outputs=[changed]))
            written += 1
        log(NAME, f"Added normalization to {written} egs; had errors on {failed}")
        if not written:
            raise NothingDoneError("no example was written")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
