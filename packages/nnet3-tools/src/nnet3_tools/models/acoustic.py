"""Tools for what an acoustic model has beside its network: transitions and priors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import nnet3_descriptors
import nnet3_graph
import nnet3_tables
from nnet3_training import egs

from nnet3_tools import cli, flags, streams

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from nnet3_descriptors.model_files import TransitionModel
    from nnet3_speech.hmm import Transitions


@cli.tool(
    "nnet3-am-init",
    "",
    click.argument("names", metavar="TREE TOPOLOGY NNET-IN MODEL-OUT", nargs=-1),
    flags.BINARY_MODEL,
)
def nnet3_am_init(names: tuple[str, ...], binary: bool) -> None:
    """Make the acoustic model MODEL-OUT, a .mdl file, from the network NNET-IN, a .raw file.

    The transition model is made from TREE and TOPOLOGY. If only one file stands before NNET-IN, it
    must begin with a transition model, and the tool takes that. The model has no priors. A file can
    be "-", "command |" or "| command".
    """
    if len(names) not in (3, 4):
        raise cli.ArgumentCountError(f"expected three or four files, got {len(names)}")
    *origin, nnet_in, model_out = names
    transition_model = _transition_model(origin)
    nnet = streams.read_nnet(nnet_in)
    left_context, right_context = nnet3_graph.compute_context(nnet)
    model = nnet3_descriptors.AcousticModel(
        transition_model=transition_model,
        nnet=nnet,
        left_context=left_context,
        right_context=right_context,
        priors=(),
    )
    streams.write_acoustic_model(model, model_out, binary=binary)
    cli.log(f"Initialized am-nnet (neural net acoustic model) and wrote to {model_out}")


def _transition_model(origin: list[str]) -> TransitionModel:
    from nnet3_speech.hmm import read_transitions, read_tree
    from nnet3_training.hmm import initial_transition_model, read_hmm_topology

    if len(origin) == 1:
        return streams.read(read_transitions, origin[0]).model
    tree = streams.read(read_tree, origin[0])
    topology = streams.read(read_hmm_topology, origin[1])
    return initial_transition_model(tree, topology)


@cli.tool(
    "nnet3-am-train-transitions",
    "MODEL-IN ALIGNMENTS-RSPECIFIER MODEL-OUT",
    flags.BINARY_MODEL,
    cli.boolean_option("--set-priors", "Set the priors of pdfs, too.", default=True),
    cli.option(
        "--prior-floor",
        5.0e-06,
        "Smallest prior.",
        shown=True,
        type=click.FloatRange(min=0.0, max=1.0, min_open=True, max_open=True),
    ),
    cli.option("--transition-floor", 0.01, "Smallest transition probability."),
    cli.option("--transition-min-count", 5.0, "Do not change states with fewer counts."),
    cli.boolean_option("--share-for-pdfs", "Give states with the same pdf the same probabilities."),
)
def nnet3_am_train_transitions(
    model_in: str,
    alignments_in: str,
    model_out: str,
    binary: bool,
    set_priors: bool,
    prior_floor: float,
    share_for_pdfs: bool,
    **training: float,
) -> None:
    """Estimate the transition probabilities of MODEL-IN from ALIGNMENTS-RSPECIFIER, to MODEL-OUT.

    An alignment has the transition-id of each frame.
    """
    import attrs  # not for --help
    from nnet3_speech.hmm import Transitions
    from nnet3_training.hmm import TransitionTraining, train_transitions

    model = streams.read(nnet3_descriptors.read_acoustic_model, model_in)
    transitions = Transitions.of(model.transition_model)
    counts = _counted(alignments_in, transitions)
    options = TransitionTraining(share_for_pdfs=share_for_pdfs, **training)
    trained = train_transitions(transitions, counts, options)
    change = trained.improvement / trained.count if trained.count else 0.0
    cli.log(
        f"TransitionModel::Update, objf change is {change:.6g} per frame over "
        f"{trained.count:.6g} frames. "
    )
    what = "pdf-ids" if share_for_pdfs else "transition-states"
    cli.log(
        f"{trained.num_floored} probabilities floored, {trained.num_skipped} out of "
        f"{trained.num_groups} {what} skipped due to insuffient data "
        "(it is normal to have some skipped.)"
    )
    cli.log(
        f"Transition model update: average {change:.6g} log-like improvement per frame over "
        f"{trained.count:.6g} frames."
    )
    model = attrs.evolve(model, transition_model=trained.model)
    if set_priors:
        cli.log("Setting priors of pdfs in the model.")
        wanted = model.nnet.node_dim("output")
        if transitions.num_pdfs != wanted:
            raise click.ClickException(
                f"{model_in}: the transition model has {transitions.num_pdfs} pdfs, the network "
                f"{wanted} outputs"
            )
        priors = priors_of(transitions, counts, prior_floor)
        model = attrs.evolve(model, priors=priors)
    streams.write_acoustic_model(model, model_out, binary=binary)
    cli.log(f"Trained transitions of neural network model and wrote it to {model_out}")


def _counted(alignments_in: str, transitions: Transitions) -> npt.NDArray[np.float64]:
    """The number of times that each transition-id occurs in a table of alignments, (ids,)."""
    import numpy as np

    counts = np.zeros(len(transitions.pdfs))
    number = 0
    for entry in nnet3_tables.read_objects(alignments_in, egs.read_alignment):
        wrong = entry.value[(entry.value < 1) | (entry.value > transitions.num_ids)]
        if len(wrong):
            raise click.ClickException(
                f"utterance '{entry.key}': expected transition-ids of 1 to {transitions.num_ids}, "
                f"found {wrong[0]}"
            )
        counts += np.bincount(entry.value, minlength=len(counts))
        number += 1
    cli.log(f"Accumulated transition stats from {number} utterances.")
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


@cli.tool(
    "nnet3-am-adjust-priors",
    "MODEL-IN SUMMED-POSTERIORS-IN MODEL-OUT",
    flags.BINARY_MODEL,
    ignored=flags.unused("--prior-floor"),
)
def nnet3_am_adjust_priors(model_in: str, posteriors_in: str, model_out: str, binary: bool) -> None:
    """Give the acoustic model MODEL-IN priors in proportion to SUMMED-POSTERIORS-IN, a vector."""
    import attrs  # not for --help
    import numpy as np
    from nnet3_descriptors.files import read_vector

    model = streams.read(nnet3_descriptors.read_acoustic_model, model_in)
    sums = streams.read(read_vector, posteriors_in)
    wanted = model.nnet.node_dim("output")
    if sums.size != wanted or not (np.isfinite(sums).all() and sums.min() >= 0.0 < sums.sum()):
        raise click.ClickException(
            f"{posteriors_in}: expected {wanted} posteriors, not all zero, found {sums.size} "
            "numbers"
        )
    priors = sums * np.float32(1.0 / sums.sum(dtype=np.float64))
    if not model.priors.size:
        cli.log("Model did not previously have priors attached.")
    else:
        _say_change(model.priors, priors)
    streams.write_acoustic_model(attrs.evolve(model, priors=priors), model_out, binary=binary)
    cli.log(f"Modified priors of neural network model and wrote it to {model_out}")


def _say_change(
    old: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    new: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
) -> None:
    import numpy as np

    pdf = int(np.abs(new - old).argmax())
    cli.log(
        f"Adjusting priors: largest absolute difference was for pdf {pdf}, {old[pdf]:.6g} -> "
        f"{new[pdf]:.6g}"
    )
    p, q = (each.astype(np.float64) / each.sum(dtype=np.float64) for each in (old, new))
    divergence = float(np.sum(np.where(p > 0.0, p * np.log(p / q), 0.0)))
    cli.log(f"Adjusting priors: K-L divergence from old to new is {divergence:.6g}")
