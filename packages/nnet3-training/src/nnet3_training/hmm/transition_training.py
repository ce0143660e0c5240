"""Transition probabilities estimated from counts of transitions, as alignments have them.

The probabilities of a state are its relative counts, but not below a floor; a state with too few
counts keeps those that it has.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.model_files import TransitionModel

from nnet3_training.errors import HmmError
from nnet3_training.hmm.transitions import Transitions

_ROUNDS = 3
"""How often probabilities are made to add up to 1, and then raised to the floor."""


@attrs.frozen(kw_only=True)
class TransitionTraining:
    """How probabilities are estimated; names and defaults are Kaldi's.

    Attributes:
        transition_floor: None becomes smaller.
        transition_min_count: A state that was seen less keeps its probabilities.
        share_for_pdfs: Whether states with the same pdf have the same probabilities.
    """

    transition_floor: float = 0.01
    transition_min_count: float = 5.0
    share_for_pdfs: bool = False


@attrs.frozen(kw_only=True, eq=False)
class TrainedTransitions:
    """What came of it.

    Attributes:
        model: The transition model with the new probabilities.
        improvement: How much the log-likelihood of the counts grew, in sum.
        count: The counts of states with more than one transition.
        num_floored: How many probabilities were raised to the floor.
        num_skipped: How many states, or pdfs, were seen too little.
        num_groups: How many states, or pdfs, there are.
    """

    model: TransitionModel
    improvement: float
    count: float
    num_floored: int
    num_skipped: int
    num_groups: int


def train_transitions(
    transitions: Transitions,
    counts: npt.NDArray[np.float64],
    options: TransitionTraining | None = None,
) -> TrainedTransitions:
    """Estimates the probabilities.

    Args:
        transitions: The model as it is.
        counts: (ids,), how often each transition-id was seen; that of 0 does not count.
        options: How.

    Raises:
        HmmError: there are not as many counts as transition-ids and 1; or states that are to share
            probabilities have different numbers of transitions.
    """
    options = options or TransitionTraining()
    if counts.shape != transitions.pdfs.shape:
        raise HmmError(
            f"expected {len(transitions.pdfs)} counts of transitions, found {counts.shape}"
        )
    log_probs = transitions.model.log_probs.copy()
    floor = np.float32(options.transition_floor)
    improvement = total = 0.0
    num_floored = num_skipped = 0
    groups = list(_groups(transitions, shared=options.share_for_pdfs))
    for ids in groups:
        seen = counts[ids].sum(axis=0)
        if len(seen) == 1:
            continue
        total += seen.sum()
        if seen.sum() < options.transition_min_count:
            num_skipped += 1
            continue
        found = (seen / seen.sum()).astype(np.float32)
        for _ in range(_ROUNDS):
            found = np.maximum(found / found.sum(), floor)
        num_floored += int((found == floor).sum())
        new = np.log(found)
        improvement += float(seen @ (new.astype(np.float64) - log_probs[ids[0]]))
        log_probs[ids] = new
    return TrainedTransitions(
        model=attrs.evolve(transitions.model, log_probs=log_probs),
        improvement=improvement,
        count=total,
        num_floored=num_floored,
        num_skipped=num_skipped,
        num_groups=len(groups),
    )


def _groups(transitions: Transitions, *, shared: bool) -> Iterator[npt.NDArray[np.int64]]:
    """The transition-ids, (states, transitions), of the states that are estimated together."""
    bounds = [*transitions.first_ids.tolist(), len(transitions.pdfs)]
    by_state = [np.arange(first, end) for first, end in itertools.pairwise(bounds)]
    if not shared:
        yield from (ids[None] for ids in by_state)
        return
    states: dict[int, dict[int, None]] = defaultdict(dict)
    for number, (_, _, forward, self_loop) in enumerate(transitions.model.tuples):
        states[forward][number] = None
        states[self_loop][number] = None
    for pdf in sorted(states):
        together = [by_state[number] for number in sorted(states[pdf])]
        if len({len(ids) for ids in together}) != 1:
            raise HmmError(
                f"states with pdf {pdf} have different numbers of transitions: they cannot share "
                "probabilities"
            )
        yield np.stack(together)
