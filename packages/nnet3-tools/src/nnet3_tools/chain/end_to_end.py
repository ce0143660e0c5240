"""End-to-end training: numerators of training graphs, without alignments.

chain-make-num-fst-e2e      makes the FSTs of numerators
nnet3-chain-e2e-get-egs     makes examples of features and training graphs
"""

from __future__ import annotations

import contextlib
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
    from nnet3_speech.hmm import Transitions


_MOST_MISSING = 4
"""The most frames by which an utterance may be longer or shorter than an allowed length."""


def _normalization(name: str) -> graphs.Normalization:

    return graphs.Normalization(streams.read(nnet3_training.read_fst, name))


def _transitions(name: str) -> Transitions:
    from nnet3_speech.hmm import read_transitions

    return streams.read(read_transitions, name)


@cli.tool(
    "chain-make-num-fst-e2e", "TRANSITION-MODEL NORMALIZATION-FST GRAPHS-RSPECIFIER FSTS-WSPECIFIER"
)
def chain_make_num_fst_e2e(model_in: str, fst_in: str, graphs_in: str, fsts_out: str) -> None:
    """Make the FST of the numerator of each training graph of GRAPHS-RSPECIFIER.

    Labels become 1 + the number of a pdf, and paths get the weights of NORMALIZATION-FST. The FST
    of a graph without such a path is empty.
    """
    transitions, normalization = _transitions(model_in), _normalization(fst_in)
    forms.check_files(graphs_in, fsts_out)
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
    for table in filter(None, (features_in, graphs_in, ivectors_in)):
        forms.check_files(table, egs_out)
    failed, ivectors = 0, making.ivector_table(options)
    with contextlib.ExitStack() as stack:
        maker = _ExampleMaker(
            options=split_options,
            transitions=_transitions(model_in),
            normalization=_normalization(first[0]) if first else None,
            features=stack.enter_context(nnet3_tables.MatrixLookup(features_in)),
            ivectors=ivectors and stack.enter_context(ivectors),
            given=options,
            rng=egs.CRandom(options["srand"]),
        )
        writer = stack.enter_context(nnet3_tables.ObjectWriter(egs_out))
        for entry in nnet3_tables.read_objects(graphs_in, chain.read_table_fst):
            try:
                example = maker.example(entry.key, entry.value)
                if options["compress"]:
                    example = egs.with_compression(example)
            except nnet3_training.ExampleError as error:
                cli.warn(cli.one_line(error))
                failed += 1
            else:
                forms.CHAIN.write(writer, example)
    if failed:
        cli.warn(f"{failed} utterances had errors and could not be processed.")


@attrs.frozen(kw_only=True, eq=False)
class _ExampleMaker:
    """Makes the examples of utterances.

    Attributes:
        options: The allowed lengths, the context, and the subsampling factor.
        transitions: The transition model of the graphs.
        normalization: Gives paths their weights; None to leave that for later.
        features: Features.
        ivectors: I-vectors, if there are any.
        given: The options of the tool.
        rng: Draws the i-vectors.
    """

    options: nnet3_training.SplitOptions
    transitions: Transitions
    normalization: graphs.Normalization | None
    features: nnet3_tables.MatrixLookup
    ivectors: nnet3_tables.ObjectLookup[Any] | None
    given: dict[str, Any]
    rng: egs.CRandom

    def example(self, key: str, graph: nnet3_training.Fst) -> nnet3_training.TrainingExample:
        """The example of an utterance with this training graph.

        Raises:
            ExampleError: something is missing, or the graph does not fit the features.
            click.ClickException: the length of the utterance is not allowed.
        """
        features = self.features.get(key)
        if features is None:
            raise nnet3_training.ExampleError(f"No features for utterance {key}")
        ivectors = making.ivectors_of(self.ivectors, key, len(features), self.given)
        num_frames = self._allowed_length(key, len(features))
        num_outputs = -(-num_frames // self.options.frame_subsampling_factor)
        try:
            known = graphs.end_to_end(graph, self.transitions, num_outputs)
        except nnet3_training.ExampleError as error:
            raise nnet3_training.ExampleError(f"For utterance {key}, {error}") from error
        if self.normalization is not None:
            normalized = self.normalization.added(known)
            if normalized is None:
                cli.warn(
                    f"For utterance {key}, FST was empty after composing with normalization FST; "
                    "the example has its paths without weights."
                )
            else:
                known = normalized
        utterance = chain.ChainUtterance(
            key=key,
            features=features,
            supervision=known,
            ivectors=ivectors,
            ivector_period=self.given["online_ivector_period"],
        )
        return chain.whole_example(utterance, num_frames, self.options, self.rng)

    def _allowed_length(self, key: str, num_frames: int) -> int:
        """The allowed length that is nearest; logs a warning if it is not the utterance's."""
        allowed = self.options.num_frames
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
