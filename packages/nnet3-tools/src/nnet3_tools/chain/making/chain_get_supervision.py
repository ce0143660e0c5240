"""chain-get-supervision: makes supervisions from alignments or phone lattices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import nnet3_tables
import nnet3_training

from nnet3_tools.ignored_options import unused
from nnet3_tools.kaldi_command import (
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
    from nnet3_training.chain.graphs import ProtoSupervision, SupervisionOptions

    Made = Iterator[tuple[str, Callable[[], ProtoSupervision]]]

NAME = "chain-get-supervision"


@click.command(cls=KaldiCommand, ignored=unused("--weight"))
@click.argument("tree_in", metavar="TREE")
@click.argument("model_in", metavar="TRANSITION-MODEL")
@click.argument("phones_in", metavar="PHONES-RSPECIFIER")
@click.argument("supervisions_out", metavar="SUPERVISION-WSPECIFIER")
@click.option(
    "--left-tolerance",
    default=5,
    show_default=True,
    help="Number of input frames by which a phone may begin earlier.",
)
@click.option(
    "--right-tolerance",
    default=5,
    show_default=True,
    help="Number of input frames by which a phone may end later.",
)
@click.option(
    "--frame-subsampling-factor",
    default=1,
    show_default=True,
    help="Frames of the input for each frame of the output.",
)
@boolean_option(
    "--convert-to-pdfs", default=True, help="Labels are pdfs + 1; otherwise transition-ids."
)
@boolean_option("--lattice-input", help="PHONES-RSPECIFIER has phone lattices.")
@click.option(
    "--lm-scale",
    default=0.0,
    show_default=True,
    help="Factor for the graph costs of lattices, below 1.",
)
def command(
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
    from nnet3_training.chain import supervision_bytes
    from nnet3_training.chain.graphs import SupervisionOptions, supervision_of

    settings = SupervisionOptions(**options)
    with readable(model_in) as source:
        transitions = read_transitions(source)
    with readable(tree_in) as source:
        tree = read_tree(source)
    nnet3_tables.Specifier.to_write(supervisions_out).check_overwrites_none(
        nnet3_tables.files_of(phones_in)
    )
    done = failed = 0
    protos = _from_lattices if lattice_input else _from_alignments
    with nnet3_tables.ObjectWriter(supervisions_out) as writer:
        for key, make in protos(phones_in, settings):
            reason = "there are too many phones for the frames"
            try:
                proto = make()
                found = supervision_of(
                    proto, tree, transitions, convert_to_pdfs=settings.convert_to_pdfs
                )
            except nnet3_training.ExampleError as error:
                found, reason = None, one_line(error)
            if found is None:
                warn(NAME, f"Failed creating supervision for utterance {key}: {reason}")
                failed += 1
                continue
            writer.write(key, supervision_bytes(found, binary=not writer.is_text))
            done += 1
        log(
            NAME,
            f"Generated chain supervision information for {done} utterances, errors on {failed}",
        )
        failure = NothingDoneError(f"{failed} of {done + failed} utterances failed")
        if not done:
            raise failure
    if done <= failed:
        raise failure


def _from_alignments(rspecifier: str, options: SupervisionOptions) -> Made:
    from nnet3_training.chain.graphs import ProtoSupervision, read_alignment

    for entry in nnet3_tables.read_objects(rspecifier, read_alignment):
        yield entry.key, partial(ProtoSupervision.from_alignment, entry.value, options)


def _from_lattices(rspecifier: str, options: SupervisionOptions) -> Made:
    from nnet3_training.chain.graphs import ProtoSupervision, read_phone_lattice

    for entry in nnet3_tables.read_objects(rspecifier, read_phone_lattice):
        yield entry.key, partial(ProtoSupervision.from_lattice, entry.value, options)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
