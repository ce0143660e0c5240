"""The transition model of a tree and a topology, before anything has been trained."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors.files import PathOrFile, leave_behind, open_reader
from nnet3_descriptors.model_files import HmmState, HmmTopology, TransitionModel, read_topology
from nnet3_speech import HmmError
from nnet3_speech.hmm import ContextDependency


def initial_transition_model(tree: ContextDependency, topology: HmmTopology) -> TransitionModel:
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
