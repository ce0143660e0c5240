"""chain-make-den-fst: makes the denominator and the normalization FST."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import nnet3_training

from nnet3_tools.kaldi_command import KaldiCommand, log, logged, run_tool, warn
from nnet3_tools.streams import readable, writable

if TYPE_CHECKING:
    from nnet3_training import Fst

NAME = "chain-make-den-fst"
_FEW_ARCS = 3


@click.command(cls=KaldiCommand)
@click.argument("tree_in", metavar="TREE")
@click.argument("model_in", metavar="TRANSITION-MODEL")
@click.argument("phone_lm_in", metavar="PHONE-LM-FST")
@click.argument("den_fst_out", metavar="DEN-FST-OUT")
@click.argument("normalization_fst_out", metavar="NORMALIZATION-FST-OUT")
def command(
    tree_in: str, model_in: str, phone_lm_in: str, den_fst_out: str, normalization_fst_out: str
) -> None:
    """Make the denominator FST of a tree, a transition model and a phone language model.

    DEN-FST-OUT is what nnet3-chain-train takes. NORMALIZATION-FST-OUT is the same with other
    initial and final probabilities, as nnet3-chain-get-egs takes it. A .mdl file will do as
    TRANSITION-MODEL.
    """
    import numpy as np
    from nnet3_speech.hmm import read_transitions, read_tree
    from nnet3_training.chain.graphs import make_denominator_fst, make_normalization_fst

    with readable(tree_in) as source:
        tree = read_tree(source)
    with readable(model_in) as source:
        transitions = read_transitions(source)
    with readable(phone_lm_in) as source:
        phone_lm = nnet3_training.read_fst(source)
    try:
        with logged(NAME, "nnet3_training.chain"):
            den_fst = make_denominator_fst(phone_lm, tree, transitions)
        normalization_fst = make_normalization_fst(den_fst, transitions.num_pdfs)
    except (nnet3_training.ExampleError, nnet3_training.HmmError) as error:
        raise click.ClickException(
            f"no denominator can be made of {tree_in}, {model_in} and {phone_lm_in}: {error}"
        ) from error
    seen = np.zeros(transitions.num_pdfs, dtype=bool)
    seen[den_fst.labels - 1] = True
    for pdf in np.flatnonzero(~seen).tolist():
        warn(NAME, f"Pdf-id {pdf} is not seen in denominator graph.")
    states = den_fst.num_states
    of_few_arcs = [
        int((np.bincount(ends, minlength=states) <= _FEW_ARCS).sum())
        for ends in (den_fst.destinations, den_fst.sources)
    ]
    log(
        NAME,
        f"Number of states is {states} and arcs {den_fst.num_arcs}; number of states with "
        f"in-degree <= {_FEW_ARCS} is {of_few_arcs[0]} and with out-degree <= {_FEW_ARCS} is "
        f"{of_few_arcs[1]}",
    )
    _write(den_fst, den_fst_out)
    _write(normalization_fst, normalization_fst_out)
    log(
        NAME,
        f"Write denominator FST to {den_fst_out} and normalization FST to {normalization_fst_out}",
    )


def _write(fst: Fst, name: str) -> None:
    with writable(name) as target:
        nnet3_training.write_fst(fst, target)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
