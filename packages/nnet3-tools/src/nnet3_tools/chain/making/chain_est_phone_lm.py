"""chain-est-phone-lm: makes the phone language model of the denominator."""

from __future__ import annotations

from typing import Any

import click
import nnet3_tables
import nnet3_training

from nnet3_tools.ignored_options import unused
from nnet3_tools.kaldi_command import KaldiCommand, log, run_tool
from nnet3_tools.streams import writable

NAME = "chain-est-phone-lm"


@click.command(cls=KaldiCommand, ignored=unused("--binary"))
@click.argument("phones_in", metavar="PHONES-RSPECIFIER")
@click.argument("fst_out", metavar="FST-OUT")
@click.option("--ngram-order", default=4, show_default=True, help="Longest n-gram.")
@click.option(
    "--num-extra-lm-states",
    default=1000,
    show_default=True,
    help="Number of states beside those of --no-prune-ngram-order.",
)
@click.option(
    "--no-prune-ngram-order",
    default=3,
    show_default=True,
    help="Never prune n-grams of this order.",
)
def command(phones_in: str, fst_out: str, **options: Any) -> None:
    """Make a language model of the phone sequences of PHONES-RSPECIFIER, and write it to FST-OUT.

    It is a deterministic acceptor without epsilons, and nothing is smoothed.
    """
    from nnet3_training.chain.graphs import PhoneLmOptions, estimate_phone_lm, read_phones

    sequences = (entry.value for entry in nnet3_tables.read_objects(phones_in, read_phones))
    model = estimate_phone_lm(sequences, PhoneLmOptions(**options))
    extra = options["num_extra_lm_states"]
    log(
        NAME,
        f"In LM [hard] backoff, target num states was {model.num_basic} + --num-extra-lm-states="
        f"{extra} = {model.num_basic + extra}, pruned from {model.num_before} to "
        f"{model.fst.num_states}",
    )
    log(NAME, f"Total number of phone instances seen was {model.num_phones}")
    log(NAME, f"Perplexity on training data is: {model.perplexity:.6g}")
    log(
        NAME,
        f"Created phone language model with {model.fst.num_states} states and "
        f"{model.fst.num_arcs} arcs.",
    )
    with writable(fst_out) as target:
        nnet3_training.write_fst(model.fst, target)
    log(NAME, f"Estimated phone language model and wrote it to {fst_out}")


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
