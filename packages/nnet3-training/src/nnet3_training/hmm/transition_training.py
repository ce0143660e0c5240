"""Transition probabilities estimated from counts of transitions in alignments.

The probabilities of a state are its relative counts, but not below a floor. A state with too few
counts keeps its probabilities.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.model_files import TransitionModel
from nnet3_speech import HmmError
from nnet3_speech.hmm import Transitions

_ROUNDS = 3
"""Number of rounds; each makes probabilities add up to 1, and raises them to the floor."""


@attrs.frozen(kw_only=True)
class TransitionTraining:
    """The options of estimation; names and defaults are Kaldi's.

    Attributes:
        transition_floor: The smallest probability.
        transition_min_count: A state with a smaller count keeps its probabilities.
        share_for_pdfs: Whether states with the same pdf share probabilities.
    """

    transition_floor: float = 0.01
    transition_min_count: float = 5.0
    share_for_pdfs: bool = False


@attrs.frozen(kw_only=True, eq=False)
class TrainedTransitions:
    """The result of training transition probabilities.

    Attributes:
        model: The transition model with the new probabilities.
        improvement: The growth of the log-likelihood of the counts.
        count: The sum of the counts of states with more than one transition.
        num_floored: Number of probabilities that were raised to the floor.
        num_skipped: Number of states, or pdfs, with too small a count.
        num_groups: Number of states, or pdfs.
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
        transitions: The old model.
        counts: (ids,), the count of each transition-id; the count of id 0 is ignored.
        options: The options.

    Raises:
        HmmError: the number of counts is not 1 + the number of transition-ids; or states that share
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
