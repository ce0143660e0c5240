"""Tools that make graphs of 'chain' models: phone language models, denominators, supervisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click
import nnet3_tables
import nnet3_training
from nnet3_training import chain
from nnet3_training.chain import graphs

from nnet3_tools import cli, flags, streams


@cli.tool(
    "chain-est-phone-lm",
    "PHONES-RSPECIFIER FST-OUT",
    cli.option("--ngram-order", 4, "Longest n-gram.", shown=True),
    cli.option(
        "--num-extra-lm-states",
        1000,
        "Number of states beside those of --no-prune-ngram-order.",
        shown=True,
    ),
    cli.option("--no-prune-ngram-order", 3, "Never prune n-grams of this order.", shown=True),
    ignored=flags.unused("--binary"),
)
def chain_est_phone_lm(phones_in: str, fst_out: str, **options: Any) -> None:
    """Make a language model of the phone sequences of PHONES-RSPECIFIER, and write it to FST-OUT.

    It is a deterministic acceptor without epsilons, and nothing is smoothed.
    """
    sequences = (entry.value for entry in nnet3_tables.read_objects(phones_in, graphs.read_phones))
    model = graphs.estimate_phone_lm(sequences, graphs.PhoneLmOptions(**options))
    extra = options["num_extra_lm_states"]
    cli.log(
        f"In LM [hard] backoff, target num states was {model.num_basic} + --num-extra-lm-states="
        f"{extra} = {model.num_basic + extra}, pruned from {model.num_before} to "
        f"{model.fst.num_states}"
    )
    cli.log(f"Total number of phone instances seen was {model.num_phones}")
    cli.log(f"Perplexity on training data is: {model.perplexity:.6g}")
    cli.log(
        f"Created phone language model with {model.fst.num_states} states and "
        f"{model.fst.num_arcs} arcs."
    )
    _write(model.fst, fst_out)
    cli.log(f"Estimated phone language model and wrote it to {fst_out}")


_FEW_ARCS = 3


@cli.tool(
    "chain-make-den-fst", "TREE TRANSITION-MODEL PHONE-LM-FST DEN-FST-OUT NORMALIZATION-FST-OUT"
)
def chain_make_den_fst(
    tree_in: str, model_in: str, phone_lm_in: str, den_fst_out: str, normalization_fst_out: str
) -> None:
    """Make the denominator FST of a tree, a transition model and a phone language model.

    DEN-FST-OUT is what nnet3-chain-train takes. NORMALIZATION-FST-OUT is the same with other
    initial and final probabilities, as nnet3-chain-get-egs takes it. A .mdl file will do as
    TRANSITION-MODEL.
    """
    import numpy as np
    from nnet3_speech.hmm import read_transitions, read_tree

    tree = streams.read(read_tree, tree_in)
    transitions = streams.read(read_transitions, model_in)
    phone_lm = streams.read(nnet3_training.read_fst, phone_lm_in)
    try:
        with cli.logged("nnet3_training.chain"):
            den_fst = graphs.make_denominator_fst(phone_lm, tree, transitions)
        normalization_fst = graphs.make_normalization_fst(den_fst, transitions.num_pdfs)
    except (nnet3_training.ExampleError, nnet3_training.HmmError) as error:
        raise click.ClickException(
            f"no denominator can be made of {tree_in}, {model_in} and {phone_lm_in}: {error}"
        ) from error
    seen = np.zeros(transitions.num_pdfs, dtype=bool)
    seen[den_fst.labels - 1] = True
    for pdf in np.flatnonzero(~seen).tolist():
        cli.warn(f"Pdf-id {pdf} is not seen in denominator graph.")
    states = den_fst.num_states
    of_few_arcs = [
        int((np.bincount(ends, minlength=states) <= _FEW_ARCS).sum())
        for ends in (den_fst.destinations, den_fst.sources)
    ]
    cli.log(
        f"Number of states is {states} and arcs {den_fst.num_arcs}; number of states with "
        f"in-degree <= {_FEW_ARCS} is {of_few_arcs[0]} and with out-degree <= {_FEW_ARCS} is "
        f"{of_few_arcs[1]}"
    )
    _write(den_fst, den_fst_out)
    _write(normalization_fst, normalization_fst_out)
    cli.log(
        f"Write denominator FST to {den_fst_out} and normalization FST to {normalization_fst_out}"
    )


def _write(fst: nnet3_training.Fst, name: str) -> None:
    with streams.writable(name) as target:
        nnet3_training.write_fst(fst, target)


@cli.tool(
    "chain-get-supervision",
    "TREE TRANSITION-MODEL PHONES-RSPECIFIER SUPERVISION-WSPECIFIER",
    cli.option(
        "--left-tolerance",
        5,
        "Number of input frames by which a phone may begin earlier.",
        shown=True,
    ),
    cli.option(
        "--right-tolerance", 5, "Number of input frames by which a phone may end later.", shown=True
    ),
    cli.option(
        "--frame-subsampling-factor",
        1,
        "Frames of the input for each frame of the output.",
        shown=True,
    ),
    cli.boolean_option(
        "--convert-to-pdfs", "Labels are pdfs + 1; otherwise transition-ids.", default=True
    ),
    cli.boolean_option("--lattice-input", "PHONES-RSPECIFIER has phone lattices."),
    cli.option("--lm-scale", 0.0, "Factor for the graph costs of lattices, below 1.", shown=True),
    ignored=flags.unused("--weight"),
)
def chain_get_supervision(
    tree_in: str,
    model_in: str,
    phones_in: str,
    supervisions_out: str,
    lattice_input: bool,
    **options: Any,
) -> None:
    """Make a supervision of the phones and durations of each utterance of PHONES-RSPECIFIER.

    These are alignments as ali-to-phones --write-lengths=true writes them, or lattices as
    lattice-align-phones --replace-output-symbols=true does. A .mdl file will do as
    TRANSITION-MODEL.
    """
    from nnet3_speech.hmm import read_transitions, read_tree

    settings = graphs.SupervisionOptions(**options)
    transitions = streams.read(read_transitions, model_in)
    tree = streams.read(read_tree, tree_in)
    streams.check_tables([phones_in], supervisions_out)
    done = failed = 0
    with nnet3_tables.ObjectWriter(supervisions_out) as writer:
        for key, make in _protos(phones_in, settings, lattices=lattice_input):
            reason = "there are too many phones for the frames"
            try:
                proto = make()
                found = graphs.supervision_of(
                    proto, tree, transitions, convert_to_pdfs=settings.convert_to_pdfs
                )
            except nnet3_training.ExampleError as error:
                found, reason = None, cli.one_line(error)
            if found is None:
                cli.warn(f"Failed creating supervision for utterance {key}: {reason}")
                failed += 1
                continue
            writer.write(key, chain.supervision_bytes(found, binary=not writer.is_text))
            done += 1
        cli.log(
            f"Generated chain supervision information for {done} utterances, errors on {failed}"
        )
        failure = cli.NothingDoneError(f"{failed} of {done + failed} utterances failed")
        if not done:
            raise failure
    if done <= failed:
        raise failure


def _protos(
    rspecifier: str, options: graphs.SupervisionOptions, *, lattices: bool
) -> Iterator[tuple[str, Callable[[], graphs.ProtoSupervision]]]:
    """For each entry of a table of alignments or of lattices a function that makes its proto."""
    proto = graphs.ProtoSupervision
    if lattices:
        for lattice in nnet3_tables.read_objects(rspecifier, graphs.read_phone_lattice):
            yield lattice.key, partial(proto.from_lattice, lattice.value, options)
    else:
        for alignment in nnet3_tables.read_objects(rspecifier, graphs.read_alignment):
            yield alignment.key, partial(proto.from_alignment, alignment.value, options)
