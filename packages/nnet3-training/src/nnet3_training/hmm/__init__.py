"""Transition models made from a tree and a topology, and their probabilities estimated.

The probabilities of a state are its relative counts in alignments, but not below a floor. A state
with too few counts keeps its probabilities.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import PathOrFile, leave_behind, open_reader
from nnet3_descriptors.model_files import HmmState, HmmTopology, TransitionModel, read_topology
from nnet3_speech import HmmError, hmm

from nnet3_training import fields

__all__ = [
    "TrainedTransitions",
    "TransitionTraining",
    "check_topology",
    "initial_transition_model",
    "read_hmm_topology",
    "train_transitions",
]


def initial_transition_model(tree: hmm.ContextDependency, topology: HmmTopology) -> TransitionModel:
    """The transition states that a tree gives the states of a topology, with its probabilities.

    Transition states are in the order of their phone, HMM state, pdf and pdf of the self-loop.

    Raises:
        HmmError: the topology is not valid, or the tree does not fit it.
    """
    check_topology(topology)
    has_pairs = any(
        state.forward_pdf_class != state.self_loop_pdf_class
        for states in topology.entries
        for state in states
    )
    tuples: list[tuple[int, int, int, int]] = []
    for phone in topology.phones:
        for number, state in enumerate(topology.entries[topology.phone_entries[phone]]):
            if state.forward_pdf_class < 0:
                continue
            if has_pairs:
                pairs = tree.pdf_pairs(
                    phone, state.forward_pdf_class, state.self_loop_pdf_class, topology.phones
                )
            else:
                pairs = tuple((pdf, pdf) for pdf in tree.pdfs(phone, state.forward_pdf_class))
            if not pairs:
                raise HmmError(
                    f"the tree has no pdf for state {number} of phone {phone}: it does not fit the "
                    "topology"
                )
            tuples += [(phone, number, *pair) for pair in pairs]
    tuples.sort()
    probabilities = [0.0]
    for phone, number, _, _ in tuples:
        states = topology.entries[topology.phone_entries[phone]]
        probabilities += [probability for _, probability in states[number].transitions]
    log_probs = np.zeros(len(probabilities), dtype=np.float32)
    log_probs[1:] = np.log(np.array(probabilities[1:], dtype=np.float32))
    return TransitionModel(
        phones=topology.phones,
        phone_entries=topology.phone_entries,
        entries=topology.entries,
        tuples=tuple(tuples),
        log_probs=log_probs,
        chain=has_pairs,
    )


def check_topology(topology: HmmTopology) -> None:
    """Raises an HmmError unless each phone has an HMM whose only final state is the last one.

    Transitions must lead to states of the HMM, with probabilities above 0 and at most 1, and a
    transition must lead to each state but the first.
    """
    if not topology.phones:
        raise HmmError("the topology has no phones")
    for number, states in enumerate(topology.entries):
        where = f"entry {number} of the topology"
        if len(states) < 2:
            raise HmmError(f"{where}: expected two states at least, found {len(states)}")
        if states[-1].transitions or states[-1].forward_pdf_class >= 0:
            raise HmmError(f"{where}: the last state must have no transitions and no pdf class")
        reached = {0}
        for source, state in enumerate(states[:-1]):
            reached |= _checked_destinations(state, len(states), f"{where}: state {source}")
        if len(reached) != len(states):
            missing = min(set(range(len(states))) - reached)
            raise HmmError(f"{where}: no transition leads to state {missing}")


def _checked_destinations(state: HmmState, num_states: int, where: str) -> set[int]:
    """Where the transitions of a state lead."""
    if not state.transitions:
        raise HmmError(f"{where} has no transitions")
    destinations = [destination for destination, _ in state.transitions]
    if len(set(destinations)) != len(destinations):
        raise HmmError(f"{where} has two transitions to the same state")
    for destination, probability in state.transitions:
        if not 0 <= destination < num_states:
            raise HmmError(
                f"{where} leads to state {destination}, which is none of {num_states} states"
            )
        if not 0.0 < probability <= 1.0:
            raise HmmError(
                f"{where}: expected a probability above 0 and at most 1, found {probability:g}"
            )
    return set(destinations)


def read_hmm_topology(source: PathOrFile) -> HmmTopology:
    """Reads a topology, the file `topo`, in text or binary.

    Args:
        source: A path, or a file open for reading bytes.

    Raises:
        ModelFileError: the file cannot be read, or holds something else; the error says where.
    """
    reader = open_reader(source)
    start = reader.position
    topology = read_topology(reader)
    leave_behind(source, reader)
    try:
        check_topology(topology)
    except HmmError as error:
        reader.fail(str(error), at=start)
    return topology


_ROUNDS = 3
"""Number of rounds; each makes probabilities add up to 1, and raises them to the floor."""


@attrs.frozen(kw_only=True)
class TransitionTraining:
    """The options of estimation; names and defaults are Kaldi's.

    Attributes:
        transition_floor: The smallest probability.
        transition_min_count: A state with a smaller count keeps its probabilities.
        share_for_pdfs: Whether states with the same pdf share probabilities.

    Raises:
        HmmError: a number is out of range.
    """

    transition_floor: float = fields.number(HmmError, 0.01, least=0.0, below=1.0)
    transition_min_count: float = fields.number(HmmError, 5.0)
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
    transitions: hmm.Transitions,
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
            probabilities have different numbers of transitions; or a probability would be 0, or
            none.
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
        with np.errstate(invalid="ignore"):
            found = (seen / seen.sum()).astype(np.float32)
        for _ in range(_ROUNDS):
            found = np.maximum(found / found.sum(), floor)
        num_floored += int((found == floor).sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            new = np.log(found)
        if not np.isfinite(new).all():
            raise HmmError(
                f"transition-ids {ids[0, 0]} to {ids[0, -1]}: expected probabilities above 0, "
                f"found {found.tolist()} for the counts {seen.tolist()}; transition_floor "
                f"({options.transition_floor:g}) or transition_min_count "
                f"({options.transition_min_count:g}) is too small"
            )
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


def _groups(transitions: hmm.Transitions, *, shared: bool) -> Iterator[npt.NDArray[np.int64]]:
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
