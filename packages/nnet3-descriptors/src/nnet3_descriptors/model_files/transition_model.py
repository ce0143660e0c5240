"""The transition model at the head of .mdl files: HMM topology and transition probabilities.

Networks do not need it; it is stored so that a model can be written unchanged.
"""

from collections.abc import Iterable

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components.declaration.kinds import ArrayKey, read_only_float32
from nnet3_descriptors.descriptors.forms import to_single
from nnet3_descriptors.files.reader import Reader
from nnet3_descriptors.files.writer import Writer
from nnet3_descriptors.frozen_arrays import ReadOnlyArrays

_MAX_COUNT = 1 << 24
_MAX_PHONE = 1 << 20
_NO_PDF = -1


def _in_single_precision(transitions: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    return tuple((destination, to_single(each)) for destination, each in transitions)


@attrs.frozen(kw_only=True)
class HmmState:
    """A state of an HMM.

    Attributes:
        forward_pdf_class: Class of its distribution; -1 for a state that emits nothing.
        self_loop_pdf_class: Class of the distribution of its self-loop.
        transitions: Destination and probability, rounded to float32, of each transition.
    """

    forward_pdf_class: int
    self_loop_pdf_class: int
    transitions: tuple[tuple[int, float], ...] = attrs.field(converter=_in_single_precision)


@attrs.frozen(kw_only=True)
class HmmTopology:
    """The HMM of each phone, as the file `topo` beside a tree.

    Attributes:
        phones: The phones, ascending.
        phone_entries: For each phone from 0 on, its entry in `entries`, or -1.
        entries: The states of each HMM; the last one emits nothing.
    """

    phones: tuple[int, ...]
    phone_entries: tuple[int, ...]
    entries: tuple[tuple[HmmState, ...], ...]


@attrs.frozen(kw_only=True)
class TransitionModel(HmmTopology, ReadOnlyArrays):
    """An HMM topology for each phone, and the distributions and probabilities of its states.

    Attributes:
        tuples: Phone, state, distribution and distribution of the self-loop of each transition
            state, (num_transition_states, 4) int32.
        log_probs: Log-probability of each transition, from index 1 on, (num_transitions + 1,).
        chain: Self-loops may have distributions of their own (the "tuples" form of the file).
    """

    tuples: tuple[tuple[int, int, int, int], ...]
    log_probs: NDArray[np.float32] = attrs.field(converter=read_only_float32, eq=ArrayKey)
    chain: bool

    @property
    def num_pdfs(self) -> int:
        """Number of distributions, which is the dimension of the network's output."""
        return 1 + max((max(state[2:]) for state in self.tuples), default=-1)


# -- reading -----------------------------------------------------------------------------------


def read_transition_model(reader: Reader) -> TransitionModel:
    """Reads a transition model, from its opening token on.

    Raises:
        ModelFileError: the file has something else there.
    """
    reader.expect("<TransitionModel>")
    topology = read_topology(reader)
    opening = _choose(reader, "<Tuples>", "<Triples>")
    chain = opening == "<Tuples>"
    count = reader.count("states", maximum=_MAX_COUNT, least_bytes=6)
    phones, states, pdfs, *own = reader.integer_rows(count, 4 if chain else 3)
    (self_loops,) = own or [pdfs]
    reader.expect(opening.replace("<", "</"), "<LogProbs>")
    log_probs = reader.vector()
    reader.expect("</LogProbs>", "</TransitionModel>")
    return TransitionModel(
        **attrs.asdict(topology, recurse=False),
        tuples=tuple(zip(phones, states, pdfs, self_loops, strict=True)),
        log_probs=log_probs,
        chain=chain,
    )


def read_topology(reader: Reader) -> HmmTopology:
    """Reads a topology, from its opening token on.

    Raises:
        ModelFileError: the file has something else there.
    """
    reader.expect("<Topology>")
    return _read_binary_topology(reader) if reader.binary else _read_text_topology(reader)


def _read_binary_topology(reader: Reader) -> HmmTopology:
    phones, phone_entries = reader.integers(), reader.integers()
    position = reader.position
    # -1 before the number of entries says that self-loops have classes of their own.
    self_loops = reader.integer() == -1
    if not self_loops:
        reader.position = position
    entries = []
    for _ in range(reader.count("topology entries", maximum=_MAX_COUNT, least_bytes=5)):
        states = []
        for _ in range(reader.count("states", maximum=_MAX_COUNT, least_bytes=10)):
            forward = reader.integer()
            self_loop = reader.integer() if self_loops else forward
            count = reader.count("transitions", maximum=_MAX_COUNT, least_bytes=10)
            transitions = tuple((reader.integer(), reader.real()) for _ in range(count))
            states.append(
                HmmState(
                    forward_pdf_class=forward,
                    self_loop_pdf_class=self_loop,
                    transitions=transitions,
                )
            )
        entries.append(tuple(states))
    reader.expect("</Topology>")
    return HmmTopology(
        phones=tuple(phones), phone_entries=tuple(phone_entries), entries=tuple(entries)
    )


def _read_text_topology(reader: Reader) -> HmmTopology:
    entry_of_phone: dict[int, int] = {}
    entries: list[tuple[HmmState, ...]] = []
    while _choose(reader, "<TopologyEntry>", "</Topology>") == "<TopologyEntry>":
        reader.expect("<ForPhones>")
        while not _peek(reader, "</ForPhones>"):
            entry_of_phone[_read_phone(reader)] = len(entries)
        reader.expect("</ForPhones>")
        states = []
        while _choose(reader, "<State>", "</TopologyEntry>") == "<State>":
            states.append(_read_text_state(reader))
        entries.append(tuple(states))
    last = max(entry_of_phone, default=-1)
    phone_entries = [entry_of_phone.get(phone, -1) for phone in range(last + 1)]
    return HmmTopology(
        phones=tuple(sorted(entry_of_phone)),
        phone_entries=tuple(phone_entries),
        entries=tuple(entries),
    )


def _read_phone(reader: Reader) -> int:
    start = reader.position
    phone = reader.integer()
    if not 0 < phone <= _MAX_PHONE:
        reader.fail("impossible phone", at=start, expected=f"1 to {_MAX_PHONE}", found=str(phone))
    return phone


def _read_text_state(reader: Reader) -> HmmState:
    reader.integer()  # its number, which is its position
    choices = ("<PdfClass>", "<ForwardPdfClass>", "<Transition>", "</State>")
    token = _choose(reader, *choices)
    forward = self_loop = _NO_PDF
    if token in choices[:2]:
        forward = self_loop = reader.integer()
        if token == "<ForwardPdfClass>":
            reader.expect("<SelfLoopPdfClass>")
            self_loop = reader.integer()
        token = _choose(reader, *choices[2:])
    transitions = []
    while token == "<Transition>":
        transitions.append((reader.integer(), reader.real()))
        token = _choose(reader, *choices[2:])
    return HmmState(
        forward_pdf_class=forward, self_loop_pdf_class=self_loop, transitions=tuple(transitions)
    )


def _peek(reader: Reader, token: str) -> bool:
    """Tells whether that token comes next; reads nothing."""
    reader.skip_blanks()
    position = reader.position
    found = reader.token()
    reader.position = position
    return found == token


def _choose(reader: Reader, *tokens: str) -> str:
    """Reads a token that has to be one of these."""
    reader.skip_blanks()
    start = reader.position
    found = reader.token()
    if found not in tokens:
        expected = " or ".join(f"'{token}'" for token in tokens)
        reader.fail("unexpected token", at=start, expected=expected, found=f"'{found}'")
    return found


# -- writing -----------------------------------------------------------------------------------


def write_transition_model(writer: Writer, model: TransitionModel) -> None:
    """Writes a transition model as Kaldi does."""
    _write_words(writer, "<TransitionModel>", "<Topology>")
    if writer.binary:
        _write_binary_topology(writer, model)
    else:
        _write_text_topology(writer, model)
    _write_words(writer, "</Topology>")
    name = "Tuples" if model.chain else "Triples"
    writer.token(f"<{name}>")
    writer.integer(len(model.tuples))
    writer.newline()
    for values in model.tuples:
        for value in values[: 4 if model.chain else 3]:
            writer.integer(value)
        writer.newline()
    _write_words(writer, f"</{name}>", "<LogProbs>")
    writer.vector(model.log_probs)
    _write_words(writer, "</LogProbs>", "</TransitionModel>")


def _write_words(writer: Writer, *tokens: str) -> None:
    """Writes tokens, each on a line of its own."""
    for token in tokens:
        writer.token(token)
        writer.newline()


def _write_binary_topology(writer: Writer, model: TransitionModel) -> None:
    writer.integers(model.phones)
    writer.integers(model.phone_entries)
    self_loops = _has_self_loop_classes(model)
    if self_loops:
        writer.integer(-1)
    writer.integer(len(model.entries))
    for states in model.entries:
        writer.integer(len(states))
        for state in states:
            writer.integer(state.forward_pdf_class)
            if self_loops:
                writer.integer(state.self_loop_pdf_class)
            writer.integer(len(state.transitions))
            for destination, probability in state.transitions:
                writer.integer(destination)
                writer.real(probability)


def _write_text_topology(writer: Writer, model: TransitionModel) -> None:
    self_loops = _has_self_loop_classes(model)
    for number, states in enumerate(model.entries):
        _write_words(writer, "<TopologyEntry>", "<ForPhones>")
        for phone, entry in enumerate(model.phone_entries):
            if entry == number:
                writer.integer(phone)
        writer.newline()
        _write_words(writer, "</ForPhones>")
        for state_number, state in enumerate(states):
            writer.token("<State>")
            writer.integer(state_number)
            if state.forward_pdf_class != _NO_PDF:
                writer.token("<ForwardPdfClass>" if self_loops else "<PdfClass>")
                writer.integer(state.forward_pdf_class)
                if self_loops:
                    writer.token("<SelfLoopPdfClass>")
                    writer.integer(state.self_loop_pdf_class)
            for destination, probability in state.transitions:
                writer.token("<Transition>")
                writer.integer(destination)
                writer.real(probability)
            _write_words(writer, "</State>")
        _write_words(writer, "</TopologyEntry>")


def _has_self_loop_classes(model: TransitionModel) -> bool:
    return any(
        state.forward_pdf_class != state.self_loop_pdf_class
        for states in model.entries
        for state in states
    )
