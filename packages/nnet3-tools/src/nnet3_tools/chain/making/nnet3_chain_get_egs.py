"""nnet3-chain-get-egs: makes examples of chain models from features and supervisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import nnet3_tables
import nnet3_training

from nnet3_tools.egs.splitting import rounded_split_options, split_options
from nnet3_tools.kaldi_command import (
    ArgumentCountError,
    KaldiCommand,
    NothingDoneError,
    boolean_option,
    log,
    one_line,
    run_tool,
    warn,
)
from nnet3_tools.streams import readable

if TYPE_CHECKING:
    from nnet3_tables import ObjectWriter
    from nnet3_training.chain import ChainExampleMaker, ChainUtterance

NAME = "nnet3-chain-get-egs"


@click.command(cls=KaldiCommand)
@click.argument("names", metavar="[NORMALIZATION-FST] FEATURES SUPERVISIONS EGS", nargs=-1)
@split_options
@click.option(
    "--supervision-length-tolerance",
    default=1,
    help="Frames of the output by which supervisions and features may differ.",
)
@click.option(
    "--deriv-weights-rspecifier", default="", help="Table of weights of derivatives by frame."
)
@click.option(
    "--normalization-fst-scale", type=float, default=1.0, help="Multiplies the costs of the FST."
)
@boolean_option("--long-key", help="Keys also say the length and context of a chunk.")
@click.option(
    "--transition-model",
    default="",
    help="File of a transition model, for examples that do not say when phones are. SUPERVISIONS "
    "are of chain-get-supervision --convert-to-pdfs=false.",
)
def command(
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
    from nnet3_training.chain import ChainExampleMaker
    from nnet3_training.chain.graphs import Normalization
    from nnet3_training.egs import CRandom, UtteranceSplitter, read_stored_matrix

    from nnet3_tools.chain.making.tables import ChainTables
    from nnet3_tools.egs.forms import check_files

    if len(names) not in (3, 4):
        raise ArgumentCountError(f"expected three or four arguments, got {len(names)}")
    *first, features_in, supervisions_in, egs_out = names
    normalization = None
    if first:
        with readable(first[0]) as source:
            normalization = Normalization(nnet3_training.read_fst(source), normalization_fst_scale)
    for table in (features_in, supervisions_in):
        check_files(table, egs_out)
    transitions = None
    if transition_model:
        with readable(transition_model) as source:
            transitions = read_transitions(source)
    rng = CRandom(options["srand"])
    maker = ChainExampleMaker(
        splitter=UtteranceSplitter(rounded_split_options(options, NAME), rng),
        normalization=normalization,
        rng=rng,
        transitions=transitions,
        length_tolerance=supervision_length_tolerance,
        has_long_keys=long_key,
    )
    tables = ChainTables.opened(supervisions_in, deriv_weights_rspecifier, options)
    written = failed = 0
    with nnet3_tables.ObjectWriter(egs_out) as writer:
        for entry in nnet3_tables.read_objects(features_in, read_stored_matrix):
            assert not isinstance(entry.value, nnet3_training.SparsePosteriors)
            try:
                utterance = tables.utterance(entry.key, entry.value)
                maker.usable_frames(utterance)
            except nnet3_training.ExampleError as error:
                _warn(one_line(error))
                failed += 1
                continue
            count = _write(writer, maker, utterance, compress=options["compress"])
            written += count
            failed += not count
        if failed:
            _warn(f"{failed} utterances had errors and could not be processed.")
        for line in maker.splitter.lines():
            log(NAME, line)
        if not written:
            raise NothingDoneError(f"no example was made of the utterances of '{features_in}'")


def _warn(message: str) -> None:
    warn(NAME, message)


def _write(
    writer: ObjectWriter, maker: ChainExampleMaker, utterance: ChainUtterance, *, compress: bool
) -> int:
    """Writes the examples of an utterance; returns how many."""
    from nnet3_training.egs import with_compression

    from nnet3_tools.chain.egs.examples import CHAIN

    examples = maker.examples(utterance)
    if not examples:
        _warn(
            f"Not producing egs for utterance {utterance.key} because it is too short: "
            f"{utterance.features.shape[0]} frames."
        )
    found = [example for example in examples if example is not None]
    for _ in range(len(examples) - len(found)):
        _warn(
            f"For utterance {utterance.key}, FST of a chunk was empty after composing with "
            "normalization FST; it is left out."
        )
    for example in found:
        CHAIN.write(writer, with_compression(example) if compress else example)
    return len(found)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
