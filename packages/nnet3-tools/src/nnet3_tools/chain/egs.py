"""Tools that make examples of 'chain' models from supervisions, and give their paths weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import click
import nnet3_tables
import nnet3_training
from nnet3_training import chain, egs
from nnet3_training.chain import graphs

from nnet3_tools import cli, streams
from nnet3_tools.egs import forms, making

_FST_SCALE = cli.option("--normalization-fst-scale", 1.0, "Multiplies the costs of the FST.")


@cli.tool(
    "nnet3-chain-get-egs",
    "",
    click.argument("names", metavar="[NORMALIZATION-FST] FEATURES SUPERVISIONS EGS", nargs=-1),
    *making.SPLIT_OPTIONS,
    cli.option(
        "--supervision-length-tolerance",
        1,
        "Frames of the output by which supervisions and features may differ.",
    ),
    cli.option("--deriv-weights-rspecifier", "", "Table of weights of derivatives by frame."),
    _FST_SCALE,
    cli.boolean_option("--long-key", "Keys also say the length and context of a chunk."),
    cli.option(
        "--transition-model",
        "",
        "File of a transition model, for examples that do not say when phones are. "
        "SUPERVISIONS are of chain-get-supervision --convert-to-pdfs=false.",
    ),
)
def nnet3_chain_get_egs(
    names: tuple[str, ...],
    supervision_length_tolerance: int,
    deriv_weights_rspecifier: str,
    normalization_fst_scale: float,
    long_key: bool,
    transition_model: str,
    **options: Any,
) -> None:
    """Make examples of features and supervisions, and write them to EGS.

    Utterances are split into chunks. Without NORMALIZATION-FST the examples are not ready for
    training before nnet3-chain-normalize-egs has changed them.
    """
    from nnet3_speech.hmm import read_transitions

    if len(names) not in (3, 4):
        raise cli.ArgumentCountError(f"expected three or four arguments, got {len(names)}")
    *first, features_in, supervisions_in, egs_out = names
    normalization = None
    if first:
        normalization = graphs.Normalization(
            streams.read(nnet3_training.read_fst, first[0]), normalization_fst_scale
        )
    for table in (features_in, supervisions_in):
        forms.check_files(table, egs_out)
    transitions = None
    if transition_model:
        transitions = streams.read(read_transitions, transition_model)
    rng = egs.CRandom(options["srand"])
    maker = chain.ChainExampleMaker(
        splitter=egs.UtteranceSplitter(making.rounded_split_options(options), rng),
        normalization=normalization,
        rng=rng,
        transitions=transitions,
        length_tolerance=supervision_length_tolerance,
        has_long_keys=long_key,
    )
    utterance_of = utterance_maker(supervisions_in, deriv_weights_rspecifier, options)
    written = failed = 0
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for entry in nnet3_tables.read_objects(features_in, egs.read_stored_matrix):
            assert not isinstance(entry.value, nnet3_training.SparsePosteriors)
            try:
                utterance = utterance_of(entry.key, entry.value)
                maker.usable_frames(utterance)
            except nnet3_training.ExampleError as error:
                cli.warn(cli.one_line(error))
                failed += 1
                continue
            count = _write(writer, maker, utterance, compress=options["compress"])
            written += count
            failed += not count
        if failed:
            cli.warn(f"{failed} utterances had errors and could not be processed.")
        for line in maker.splitter.lines():
            cli.log(line)
        if not written:
            raise cli.NothingDoneError(f"no example was made of the utterances of '{features_in}'")


def _write(
    writer: nnet3_tables.ObjectWriter,
    maker: chain.ChainExampleMaker,
    utterance: chain.ChainUtterance,
    *,
    compress: bool,
) -> int:
    """Writes the examples of an utterance; returns how many."""
    examples = maker.examples(utterance)
    if not examples:
        cli.warn(
            f"Not producing egs for utterance {utterance.key} because it is too short: "
            f"{utterance.features.shape[0]} frames."
        )
    found = [example for example in examples if example is not None]
    for _ in range(len(examples) - len(found)):
        cli.warn(
            f"For utterance {utterance.key}, FST of a chunk was empty after composing with "
            "normalization FST; it is left out."
        )
    for example in found:
        forms.CHAIN.write(writer, egs.with_compression(example) if compress else example)
    return len(found)


@cli.tool(
    "nnet3-chain-normalize-egs", "NORMALIZATION-FST EGS-RSPECIFIER EGS-WSPECIFIER", _FST_SCALE
)
def nnet3_chain_normalize_egs(
    fst_in: str, egs_in: str, egs_out: str, normalization_fst_scale: float
) -> None:
    """Give the paths of the examples of EGS-RSPECIFIER the weights of NORMALIZATION-FST.

    This is for examples that nnet3-chain-get-egs made without such an FST, and for no others.
    """
    normalization = graphs.Normalization(
        streams.read(nnet3_training.read_fst, fst_in), normalization_fst_scale
    )
    forms.check_files(egs_in, egs_out)
    written = failed = 0
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for entry in forms.CHAIN.entries(egs_in):
            example = entry.value
            if len(example.outputs) != 1:
                raise click.ClickException(
                    f"example '{entry.key}': expected one output, found {len(example.outputs)}"
                )
            [output] = example.outputs
            assert isinstance(output.supervision, nnet3_training.ChainSupervision)
            found = normalization.added(output.supervision)
            if found is None:
                cli.warn(
                    f"For example {entry.key}, FST was empty after composing "
                    "with normalization FST."
                )
                failed += 1
                continue
            changed = attrs.evolve(output, supervision=found)
            forms.CHAIN.write(writer, attrs.evolve(example, outputs=[changed]))
            written += 1
        cli.log(f"Added normalization to {written} egs; had errors on {failed}")
        if not written:
            raise cli.NothingDoneError("no example was written")


Supervisions = Callable[[str, int], "nnet3_training.ChainSupervision | None"]
"""Gives the supervision of an utterance, by its key and its frames of features."""


def utterance_maker(
    supervisions: str | Supervisions, weights: str, options: Mapping[str, Any]
) -> Callable[[str, Any], chain.ChainUtterance]:
    """Returns a function that gives an utterance its data, by its key and its features.

    It raises an ExampleError if something is missing, or there are too few or too many i-vectors.

    Args:
        supervisions: A table, or a function.
        weights: A table of weights of derivatives; "" for none.
        options: The options of the tool, of which those of i-vectors count.
    """
    if isinstance(supervisions, str):
        table = nnet3_tables.ObjectLookup(supervisions, chain.read_supervision)
        supervisions = lambda key, _: table.take(key)  # noqa: E731
    ivectors = making.ivector_table(options)
    weights_of = nnet3_tables.VectorLookup(weights) if weights else None

    def utterance(key: str, features: Any) -> chain.ChainUtterance:
        supervision = supervisions(key, features.shape[0])
        if supervision is None:
            raise nnet3_training.ExampleError(f"No supervision for utterance {key}")
        found = making.ivectors_of(ivectors, key, features.shape[0], options)
        deriv_weights = None if weights_of is None else weights_of.get(key)
        if weights_of is not None and deriv_weights is None:
            raise nnet3_training.ExampleError(f"No deriv weights for utterance {key}")
        return chain.ChainUtterance(
            key=key,
            features=features,
            supervision=supervision,
            ivectors=found,
            ivector_period=options["online_ivector_period"],
            deriv_weights=deriv_weights,
        )

    return utterance
