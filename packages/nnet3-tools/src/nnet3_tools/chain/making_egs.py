"""Tools that make examples of 'chain' models, and give their paths weights.

nnet3-chain-get-egs         of features and supervisions, chunk by chunk
nnet3-chain-normalize-egs   gives the paths of such examples weights
chain-make-num-fst-e2e      makes the FSTs of numerators, for end-to-end training
nnet3-chain-e2e-get-egs     of features and training graphs, without alignments
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click
import nnet3_tables
import nnet3_training
from nnet3_training import chain, egs
from nnet3_training.chain import graphs

from nnet3_tools import cli, streams
from nnet3_tools.egs import forms, making

if TYPE_CHECKING:
    from nnet3_descriptors.files import Entry
    from nnet3_speech.hmm import Transitions


def _normalization(name: str, scale: float = 1.0) -> graphs.Normalization:
    return graphs.Normalization(streams.read(nnet3_training.read_fst, name), scale)


def _transitions(name: str) -> Transitions:
    from nnet3_speech.hmm import read_transitions

    return streams.read(read_transitions, name)


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
    if len(names) not in (3, 4):
        raise cli.ArgumentCountError(f"expected three or four arguments, got {len(names)}")
    *first, features_in, supervisions_in, egs_out = names
    normalization = _normalization(first[0], normalization_fst_scale) if first else None
    streams.check_tables([features_in, supervisions_in], egs_out)
    transitions = _transitions(transition_model) if transition_model else None
    rng = egs.CRandom(options["srand"])
    maker = chain.ChainExampleMaker(
        splitter=egs.UtteranceSplitter(making.rounded_split_options(options), rng),
        normalization=normalization,
        rng=rng,
        transitions=transitions,
        length_tolerance=supervision_length_tolerance,
        has_long_keys=long_key,
    )
    utterance_of = making.utterance_maker(
        supervisions(supervisions_in), NO_SUPERVISION, options, weights=deriv_weights_rspecifier
    )
    written = failed = 0
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for key, features in making.stored_features(features_in):
            try:
                utterance = utterance_of(key, features)
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
    utterance: egs.Utterance,
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
    normalization = _normalization(fst_in, normalization_fst_scale)
    streams.check_tables([egs_in], egs_out)
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


NO_SUPERVISION = "No supervision for utterance"
"""The error for an utterance without, before its key."""


def supervisions(rspecifier: str) -> making.Supervision:
    """Returns a function that gives the supervision of an utterance, from a table."""
    table = nnet3_tables.ObjectLookup(rspecifier, chain.read_supervision)
    return lambda key, _: table.take(key)


@cli.tool(
    "chain-make-num-fst-e2e", "TRANSITION-MODEL NORMALIZATION-FST GRAPHS-RSPECIFIER FSTS-WSPECIFIER"
)
def chain_make_num_fst_e2e(model_in: str, fst_in: str, graphs_in: str, fsts_out: str) -> None:
    """Make the FST of the numerator of each training graph of GRAPHS-RSPECIFIER.

    Labels become 1 + the number of a pdf, and paths get the weights of NORMALIZATION-FST. The FST
    of a graph without such a path is empty.
    """
    transitions, normalization = _transitions(model_in), _normalization(fst_in)
    streams.check_tables([graphs_in], fsts_out)
    count = 0
    with nnet3_tables.ObjectWriter(fsts_out) as writer:
        for entry in nnet3_tables.read_objects(graphs_in, chain.read_table_fst):
            fst = nnet3_training.Fst.empty()
            try:
                fst = normalization.composed(graphs.numerator_fst(entry.value, transitions))
            except nnet3_training.ExampleError as error:
                cli.warn(f"Utterance {entry.key} rejected: {cli.one_line(error)}")
            writer.write(entry.key, chain.fst_bytes(fst, binary=not writer.is_text))
            count += 1
    cli.log(f"Converted {count} Fsts with transition-id to Fsts with pdf-id and normalized.")


@cli.tool(
    "nnet3-chain-e2e-get-egs",
    "",
    click.argument(
        "names", metavar="[NORMALIZATION-FST] FEATURES GRAPHS TRANSITION-MODEL EGS", nargs=-1
    ),
    *making.SPLIT_OPTIONS,
)
def nnet3_chain_e2e_get_egs(names: tuple[str, ...], **options: Any) -> None:
    """Make examples of features and training graphs, and write them to EGS.

    An example is a whole utterance, whose length is one of --num-frames. If it has up to four
    frames less or more, the last frame is repeated, or frames are left out. Without
    NORMALIZATION-FST the examples are not ready for training before nnet3-chain-normalize-egs has
    changed them.
    """
    if len(names) not in (4, 5):
        raise cli.ArgumentCountError(f"expected four or five arguments, got {len(names)}")
    *first, features_in, graphs_in, model_in, egs_out = names
    split_options = making.rounded_split_options(options)
    if not split_options.num_frames:
        raise click.UsageError("--num-frames: expected the allowed lengths of utterances, found -1")
    ivectors_in = options["online_ivectors"]
    streams.check_tables([features_in, graphs_in, *filter(None, [ivectors_in])], egs_out)
    transitions = _transitions(model_in)
    normalization = _normalization(first[0]) if first else None
    rng = egs.CRandom(options["srand"])
    failed, ivectors = 0, making.ivector_table(options)
    with contextlib.ExitStack() as stack:
        features = stack.enter_context(nnet3_tables.MatrixLookup(features_in))
        if ivectors is not None:
            stack.enter_context(ivectors)
        writer = stack.enter_context(nnet3_tables.ObjectWriter(egs_out))
        for entry in nnet3_tables.read_objects(graphs_in, chain.read_table_fst):
            try:
                frames = features.get(entry.key)
                if frames is None:
                    raise nnet3_training.ExampleError(f"No features for utterance {entry.key}")
                vectors = making.ivectors_of(ivectors, entry.key, len(frames), options)
                length = _allowed_length(entry.key, len(frames), split_options.num_frames)
                num_outputs = -(-length // split_options.frame_subsampling_factor)
                utterance = egs.Utterance(
                    key=entry.key,
                    features=frames,
                    supervision=_end_to_end(entry, transitions, normalization, num_outputs),
                    ivectors=vectors,
                    ivector_period=options["online_ivector_period"],
                )
                example = chain.whole_example(entry.key, utterance, length, split_options, rng)
                if options["compress"]:
                    example = egs.with_compression(example)
            except nnet3_training.ExampleError as error:
                cli.warn(cli.one_line(error))
                failed += 1
            else:
                forms.CHAIN.write(writer, example)
    if failed:
        cli.warn(f"{failed} utterances had errors and could not be processed.")


def _end_to_end(
    entry: Entry[nnet3_training.Fst],
    transitions: Transitions,
    normalization: graphs.Normalization | None,
    num_outputs: int,
) -> nnet3_training.ChainSupervision:
    """The supervision of an utterance by its training graph.

    Raises:
        ExampleError: the graph does not fit the number of output frames.
    """
    try:
        known = graphs.end_to_end(entry.value, transitions, num_outputs)
    except nnet3_training.ExampleError as error:
        raise nnet3_training.ExampleError(f"For utterance {entry.key}, {error}") from error
    normalized = known if normalization is None else normalization.added(known)
    if normalized is None:
        cli.warn(
            f"For utterance {entry.key}, FST was empty after composing with normalization FST; "
            "the example has its paths without weights."
        )
    return known if normalized is None else normalized


_MOST_MISSING = 4
"""The most frames by which an utterance may be longer or shorter than an allowed length."""


def _allowed_length(key: str, num_frames: int, allowed: Sequence[int]) -> int:
    """The allowed length that is nearest; logs a warning if it is not the utterance's.

    Raises:
        click.ClickException: the difference is too large.
    """
    nearest = min(allowed, key=lambda length: abs(num_frames - length), default=-1)
    if nearest != num_frames:
        cli.warn(
            f"No exact match found for the length of utt {key} which has length: {num_frames} "
            f"closest allowed length is off by {num_frames - nearest} frames. Will try to fix "
            "it.."
        )
    if abs(num_frames - nearest) > _MOST_MISSING:
        raise click.ClickException(
            f"Too much length difference for utterance {key}: expected a length of "
            f"--num-frames={','.join(map(str, allowed))}, up to {_MOST_MISSING} frames more or "
            f"less; found {num_frames} frames"
        )
    return nearest
