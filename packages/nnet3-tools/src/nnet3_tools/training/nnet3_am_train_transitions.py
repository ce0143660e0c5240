"""nnet3-am-train-transitions: transition probabilities and priors from alignments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click
import nnet3_descriptors
import nnet3_tables

from nnet3_tools.kaldi_command import KaldiCommand, boolean_option, log, run_tool
from nnet3_tools.streams import readable, writable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from nnet3_speech.hmm import Transitions

NAME = "nnet3-am-train-transitions"


@click.command(cls=KaldiCommand)
@click.argument("model_in", metavar="MODEL-IN")
@click.argument("alignments_in", metavar="ALIGNMENTS-RSPECIFIER")
@click.argument("model_out", metavar="MODEL-OUT")
@boolean_option("--binary", default=True, help="Write the model in binary form.")
@boolean_option("--set-priors", default=True, help="Set the priors of pdfs, too.")
@click.option(
    "--prior-floor",
    type=click.FloatRange(min=0.0, max=1.0, min_open=True, max_open=True),
    default=5.0e-06,
    show_default=True,
    help="Smallest prior.",
)
@click.option("--transition-floor", default=0.01, help="Smallest transition probability.")
@click.option("--transition-min-count", default=5.0, help="Do not change states with fewer counts.")
@boolean_option("--share-for-pdfs", help="Give states with the same pdf the same probabilities.")
def command(
    model_in: str,
    alignments_in: str,
    model_out: str,
    binary: bool,
    set_priors: bool,
    prior_floor: float,
    transition_floor: float,
    transition_min_count: float,
    share_for_pdfs: bool,
) -> None:
    """Estimate the transition probabilities of MODEL-IN from ALIGNMENTS-RSPECIFIER, to MODEL-OUT.

    An alignment has the transition-id of each frame.
    """
    from nnet3_speech.hmm import Transitions
    from nnet3_training.hmm import TransitionTraining, train_transitions

    with readable(model_in) as source:
        model = nnet3_descriptors.read_acoustic_model(source)
    transitions = Transitions.of(model.transition_model)
    counts = _counted(alignments_in, transitions)
    trained = train_transitions(
        transitions,
        counts,
        TransitionTraining(
            transition_floor=transition_floor,
            transition_min_count=transition_min_count,
            share_for_pdfs=share_for_pdfs,
        ),
    )
    change = trained.improvement / trained.count if trained.count else 0.0
    log(NAME, f"TransitionModel::Update, objf change is {change:.6g} per frame over "
              f"{trained.count:.6g} frames. ")  # fmt: skip
    what = "pdf-ids" if share_for_pdfs else "transition-states"
    log(NAME, f"{trained.num_floored} probabilities floored, {trained.num_skipped} out of "
              f"{trained.num_groups} {what} skipped due to insuffient data "
              "(it is normal to have some skipped.)")  # fmt: skip
    log(NAME, f"Transition model update: average {change:.6g} log-like improvement per frame over "
              f"{trained.count:.6g} frames.")  # fmt: skip
    model = attrs.evolve(model, transition_model=trained.model)
    if set_priors:
        log(NAME, "Setting priors of pdfs in the model.")
        wanted = model.nnet.node_dim("output")
        if transitions.num_pdfs != wanted:
            raise click.ClickException(
                f"{model_in}: the transition model has {transitions.num_pdfs} pdfs, the network "
                f"{wanted} outputs"
            )
        priors = priors_of(transitions, counts, prior_floor)
        model = attrs.evolve(model, priors=priors)
    with writable(model_out) as target:
        nnet3_descriptors.write_acoustic_model(model, target, binary=binary)
    log(NAME, f"Trained transitions of neural network model and wrote it to {model_out}")


def _counted(alignments_in: str, transitions: Transitions) -> npt.NDArray[np.float64]:
    """The number of times that each transition-id occurs in a table of alignments, (ids,)."""
    import numpy as np
    from nnet3_training.egs import read_alignment

    counts = np.zeros(len(transitions.pdfs))
    number = 0
    for entry in nnet3_tables.read_objects(alignments_in, read_alignment):
        wrong = entry.value[(entry.value < 1) | (entry.value > transitions.num_ids)]
        if len(wrong):
            raise click.ClickException(
                f"utterance '{entry.key}': expected transition-ids of 1 to {transitions.num_ids}, "
                f"found {wrong[0]}"
            )
        counts += np.bincount(entry.value, minlength=len(counts))
        number += 1
    log(NAME, f"Accumulated transition stats from {number} utterances.")
    if not counts.any():
        raise click.ClickException(f"'{alignments_in}' has no frames")
    return counts


def priors_of(
    transitions: Transitions, counts: npt.NDArray[np.float64], floor: float
) -> npt.NDArray[np.float32]:
    """The share of each pdf in the counts of transition-ids, raised to a floor if below it."""
    import numpy as np

    sums = np.bincount(
        transitions.pdfs[1:], weights=counts[1:], minlength=transitions.num_pdfs
    ).astype(np.float32)
    priors = np.maximum(sums / sums.sum(), np.float32(floor))
    return np.asarray(priors / priors.sum(), dtype=np.float32)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
