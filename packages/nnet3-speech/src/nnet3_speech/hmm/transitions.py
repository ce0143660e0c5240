"""Transition-ids: a number for each transition of a transition model, with its pdf and cost.

A transition state is a state of a phone's HMM with its pdfs. The transitions that leave it have
numbers of their own, the transition-ids: from 1 on, the transitions of a state in the order of the
topology, the states in the order of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import PathOrFile, leave_behind, open_reader
from nnet3_descriptors.model_files import HmmState, TransitionModel, read_transition_model

from nnet3_speech.errors import HmmError

_MAX_PDF = 1 << 24
_SMALLEST = 1e-10
"""The probability of leaving a state whose self-loop has probability 1, as Kaldi's."""


@attrs.frozen(kw_only=True, eq=False)
class Transitions:
    """Transition-ids with their pdfs and costs.

    Attributes:
        model: The transition model.
        first_ids: (states,) int64, the first transition-id of each transition state.
        pdfs: (ids,) int64, the pdf of each transition-id, that of id 1 at index 1; -1 for 0.
        phones: (ids,) int64, the phone of each.
        costs: (ids,) float32, minus the log-probability of each.
        self_loops: (states,) int64, the transition-id of the self-loop, 0 where there is none.
        forward_costs: (states,) float32, minus the log-probability of not taking the self-loop.
    """

    model: TransitionModel
    first_ids: npt.NDArray[np.int64]
    pdfs: npt.NDArray[np.int64]
    phones: npt.NDArray[np.int64]
    costs: npt.NDArray[np.float32]
    self_loops: npt.NDArray[np.int64]
    forward_costs: npt.NDArray[np.float32]
    _states: Mapping[tuple[int, int, int, int], int]

    @property
    def num_ids(self) -> int:
        """Number of transitions."""
        return len(self.pdfs) - 1

    @property
    def num_pdfs(self) -> int:
        """Number of pdfs: the dimension of the network's output."""
        return self.model.num_pdfs

    @classmethod
    def of(cls, model: TransitionModel) -> Self:
        """Numbers the transitions of a model.

        Raises:
            HmmError: a state is not in the topology, or has no probability.
        """
        first, ids, phones, self_loops = [], [-1], [0], []
        for number, (phone, state, forward, self_loop) in enumerate(model.tuples):
            entry = topology_of(model, phone)
            if not 0 <= state < len(entry):
                raise HmmError(
                    f"transition state {number + 1}: phone {phone} has {len(entry)} states, found "
                    f"state {state}"
                )
            for pdf in (forward, self_loop):
                if not 0 <= pdf < _MAX_PDF:
                    raise HmmError(
                        f"transition state {number + 1}: expected pdfs of 0 to {_MAX_PDF - 1}, "
                        f"found {pdf}"
                    )
            first.append(len(ids))
            loop = 0
            for destination, _ in entry[state].transitions:
                if destination == state:
                    loop = len(ids)
                ids.append(self_loop if destination == state else forward)
                phones.append(phone)
            self_loops.append(loop)
        log_probs = model.log_probs
        if len(log_probs) != len(ids):
            raise HmmError(
                f"expected {len(ids)} log-probabilities of transitions, found {len(log_probs)}"
            )
        if not (np.isfinite(log_probs[1:]).all() and (log_probs[1:] <= 0.0).all()):
            raise HmmError("a log-probability of a transition is above 0 or not finite")
        loops = np.array(self_loops, dtype=np.int64)
        return cls(
            model=model,
            first_ids=np.array(first, dtype=np.int64),
            pdfs=np.array(ids, dtype=np.int64),
            phones=np.array(phones, dtype=np.int64),
            costs=-log_probs,
            self_loops=loops,
            forward_costs=_forward_costs(log_probs, loops),
            states={each: number for number, each in enumerate(model.tuples)},
        )

    def state(self, phone: int, hmm_state: int, forward_pdf: int, self_loop_pdf: int) -> int:
        """The transition state, from 0, of a state of a phone's HMM with these pdfs.

        Raises:
            HmmError: there is none.
        """
        found = self._states.get((phone, hmm_state, forward_pdf, self_loop_pdf))
        if found is None:
            raise HmmError(
                f"the transition model has no state {hmm_state} of phone {phone} with the pdfs "
                f"{forward_pdf} and {self_loop_pdf}: it does not fit the tree"
            )
        return found


def topology_of(model: TransitionModel, phone: int) -> tuple[HmmState, ...]:
    """The states of a phone's HMM; the last one emits nothing.

    Raises:
        HmmError: the phone has none.
    """
    entries = model.phone_entries
    entry = entries[phone] if 0 <= phone < len(entries) else -1
    if not 0 <= entry < len(model.entries):
        known = sum(0 <= each < len(model.entries) for each in entries)
        raise HmmError(f"the topology has no phone {phone}; it has {known} phones")
    states = model.entries[entry]
    if not states:
        raise HmmError(f"the topology of phone {phone} has no states")
    for number, state in enumerate(states):
        for destination, _ in state.transitions:
            if not 0 <= destination < len(states):
                raise HmmError(
                    f"the topology of phone {phone}: state {number} leads to {destination}, which "
                    f"is none of {len(states)} states"
                )
    return states


def _forward_costs(
    log_probs: npt.NDArray[np.float32], self_loops: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Minus the log-probability of leaving each state for another."""
    costs = np.zeros(len(self_loops), dtype=np.float32)
    for state, loop in enumerate(self_loops.tolist()):
        if loop:
            stays = np.exp(log_probs[loop])
            leaves = np.float32(1.0 - float(stays))
            costs[state] = -math.log(leaves if leaves > 0.0 else _SMALLEST)
    return costs


def read_transitions(source: PathOrFile) -> Transitions:
    """Reads a transition model and numbers its transitions.

    Args:
        source: A path, or a file open for reading bytes: a transition model alone (0.trans_mdl), or
            a file that begins with one (final.mdl).

    Raises:
        ModelFileError: the file cannot be read, or holds something else; the error says where.
    """
    reader = open_reader(source)
    start = reader.position
    model = read_transition_model(reader)
    leave_behind(source, reader)
    try:
        return Transitions.of(model)
    except HmmError as error:
        reader.fail(str(error), at=start)
