"""Transition-ids: a number for each transition of a transition model, with its pdf and cost.

A transition state is a state of a phone's HMM with its pdfs. The transitions that leave it have
numbers of their own, the transition-ids: from 1 on, the transitions of a state in the order of the
topology, the states in the order of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, Self

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


class PhoneState(NamedTuple):
    """A state of a phone's HMM.

    Attributes:
        phone: The name of the phone, or its number where names are not known.
        state: The number of the state, from 0.
        is_self_loop: Whether it is the state with a self-loop behind it, if that has a pdf of its
            own, as in 'chain' models: the frames of a phone after its first one.
    """

    phone: str
    state: int
    is_self_loop: bool = False


@attrs.frozen(kw_only=True, eq=False)
class PdfLabels:
    """The phones and HMM states of each pdf: each column of an acoustic model's outputs.

    `labels[pdf]` has the states of a pdf; `len(labels)` is the number of pdfs.

    Attributes:
        phones: The names of the phones, in the order of their numbers.
        states: For each pdf the states, ascending, that share it: often one, but those of several
            phones where the tree does not tell them apart.
    """

    phones: tuple[str, ...]
    states: tuple[tuple[PhoneState, ...], ...] = attrs.field(repr=False)
    _pdfs: npt.NDArray[np.int64] = attrs.field(repr=False)
    """(parts,) the pdfs of the first phone, then those of the second, and so on."""
    _shares: npt.NDArray[np.float32] = attrs.field(repr=False)
    """(parts,) how much of each counts for the phone."""
    _begins: npt.NDArray[np.int64] = attrs.field(repr=False)
    """(phones,) where the pdfs of each phone begin."""

    @classmethod
    def of(cls, model: TransitionModel, names: Mapping[int, str] | None = None) -> Self:
        """The labels by a transition model.

        Args:
            model: The transition model.
            names: The names of phones by their numbers, as `read_symbols` reads phones.txt. Phones
                of one name are one phone. None: the numbers are the names.

        Raises:
            HmmError: a phone has no name; or a pdf is negative, or beyond the number of states; or
                there are no states.
        """
        numbers = sorted({phone for phone, *_ in model.tuples})
        names = {number: str(number) for number in numbers} if names is None else names
        nameless = next((number for number in numbers if number not in names), None)
        if nameless is not None:
            raise HmmError(
                f"phone {nameless} of the transition model is none of {len(names)} phones with "
                "names: are these of another model?"
            )
        for number in numbers:
            if not isinstance(names[number], str):
                raise HmmError(f"phone {number}: expected a name, found {names[number]!r:.60}")
        states = _states_by_pdf(model)
        phones = tuple(dict.fromkeys(names[number] for number in numbers))
        parts: dict[str, dict[int, float]] = {name: {} for name in phones}
        for pdf, found in enumerate(states):
            sharing = {phone for phone, *_ in found}
            for phone in sharing:
                of_phone = parts[names[phone]]
                of_phone[pdf] = of_phone.get(pdf, 0.0) + 1.0 / len(sharing)
        flat = [each for of_phone in parts.values() for each in of_phone.items()]
        named = (
            (PhoneState(names[phone], state, loop) for phone, state, loop in sorted(found))
            for found in states
        )
        return cls(
            phones=phones,
            states=tuple(tuple(dict.fromkeys(each)) for each in named),
            pdfs=np.array([pdf for pdf, _ in flat], np.int64),
            shares=np.array([share for _, share in flat], np.float32),
            begins=np.cumsum([0, *map(len, parts.values())])[:-1],
        )

    def __len__(self) -> int:
        """Number of pdfs."""
        return len(self.states)

    def __getitem__(self, pdf: int) -> tuple[PhoneState, ...]:
        """The states of a pdf."""
        return self.states[pdf]

    def phone_posteriors(self, outputs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The probability of each phone, by the softmax of the outputs.

        Args:
            outputs: (..., pdfs): log-posteriors, or scores that differ from them by a constant in
                each row.

        Returns:
            (..., phones) float32, whose rows sum to 1, less the part of pdfs that no state has.

        Raises:
            HmmError: the outputs have another number of columns than there are pdfs.
        """
        if outputs.shape[-1:] != (len(self),):
            raise HmmError(
                f"the transition model has {len(self)} pdfs; expected as many columns of outputs, "
                f"found shape {outputs.shape}"
            )
        scores = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        parts = scores[..., self._pdfs] * self._shares
        return np.add.reduceat(parts, self._begins, axis=-1, dtype=np.float32)


def _states_by_pdf(model: TransitionModel) -> list[set[tuple[int, int, bool]]]:
    """The phone, the number of the state, and whether it is the self-loop's, for each pdf.

    Raises:
        HmmError: a pdf is negative, or beyond the number of states; or there are no states.
    """
    most = 2 * len(model.tuples)
    if not most:
        raise HmmError("the transition model has no states")
    states: list[set[tuple[int, int, bool]]] = []
    for number, (phone, state, forward, self_loop) in enumerate(model.tuples, 1):
        for pdf, is_self_loop in ((forward, False), (self_loop, self_loop != forward)):
            if not 0 <= pdf < most:
                raise HmmError(
                    f"transition state {number}: expected pdfs of 0 to {most - 1}, as there are "
                    f"{most // 2} states, found {pdf}"
                )
            while len(states) <= pdf:
                states.append(set())
            states[pdf].add((phone, state, is_self_loop))
    return states
