"""The phones and HMM states that the columns of an acoustic model's outputs stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.model_files import TransitionModel

from nnet3_speech.errors import HmmError


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
            (..., phones) float32, whose rows sum to 1.

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
