"""OpenFst's files: binary vector FSTs, compact acceptors, and the text form; read and written.

A binary file (numbers little-endian) begins with the magic number, the type of the FST and the type
of its arcs (each a 32-bit length and characters), and 32-bit version and flags. Then come, with 64
bits each, properties, start state, number of states and number of arcs. A `vector` has for each
state its final cost, the number of its arcs (64 bits), and each arc as input label, output label,
cost, destination. A `compact_acceptor` has the position (32 bits) of each state's first element and
the end of the last one, and then elements of label, cost, destination. An element is an arc, or,
with label -1 and before the arcs of a state, its final cost.

Text: a line for each arc (source, destination, labels, cost unless it is 0) and for each final
state (state, cost unless it is 0), the start state first; an empty line ends it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from typing import IO, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import files

from nnet3_training.chain.fsts.fst import Fst
from nnet3_training.egs.files import check_readable
from nnet3_training.errors import ExampleError

W = TypeVar("W")

_MAGIC: Final = 2125659606
_VERSION: Final = 2
VECTOR: Final = "vector"
"""The type of FSTs that hold states and their arcs one after the other."""
_COMPACT: Final = "compact_acceptor"
_ARC: Final = "standard"
_INT32: Final = struct.Struct("<i")
MAGIC: Final = _INT32.pack(_MAGIC)
"""The first bytes of a binary FST."""
_HEAD: Final = struct.Struct("<iiQqqq")
_STATE: Final = struct.Struct("<fq")
_VECTOR_ARC: Final = np.dtype(
    [("label", "<i4"), ("output", "<i4"), ("cost", "<f4"), ("destination", "<i4")]
)
_ELEMENT: Final = np.dtype([("label", "<i4"), ("cost", "<f4"), ("destination", "<i4")])
_NO_LABEL: Final = -1
_LONGEST_NAME: Final = 64


def read_fst(path: str | os.PathLike[str] | IO[bytes]) -> Fst:
    """Reads an FST from a file of its own, such as den.fst.

    Args:
        path: A binary file of type `vector` or `compact_acceptor` with arcs of type `standard`; or
            one that is open for reading bytes, which is read to its end.

    Raises:
        FileError: the file cannot be read; if it does not exist, the error is a FileNotFoundError.
        ModelFileError: it is no such FST; the error says where.
    """
    if isinstance(path, str | os.PathLike):
        reader = files.BinaryReader(memoryview(files.read_file(path)), os.fspath(path))
    else:
        check_readable(path)
        reader = files.BinaryReader(memoryview(path.read()), files.stream_name(path))
    fst = read_binary_fst(reader)
    if reader.remaining:
        reader.fail(
            "the file goes on behind the FST",
            expected="the end of the file",
            found=f"{reader.remaining} bytes",
        )
    return fst


def write_fst(fst: Fst, path: str | os.PathLike[str] | IO[bytes]) -> None:
    """Writes an FST to a file of its own, as a binary `vector` FST.

    Args:
        fst: The FST.
        path: A path, which is replaced at once, or a file that is open for writing bytes.

    Raises:
        FileError: the file cannot be written.
    """
    if isinstance(path, str | os.PathLike):
        files.write_atomically(path, [vector_bytes(fst)])
    else:
        path.write(vector_bytes(fst))


# ---- binary ----


class Header(NamedTuple):
    """The header of an FST.

    Attributes:
        kind: The type of the FST.
        arc: The type of its arcs.
        start: The start state.
        states: Number of states.
        arcs: Number of arcs; 0 if it is not known.
    """

    kind: str
    arc: str
    start: int
    states: int
    arcs: int


def read_binary_fst(reader: files.BinaryReader) -> Fst:
    """Reads a vector FST or compact acceptor at any place of a file.

    Raises:
        ModelFileError: the file holds something else there.
    """
    begin = reader.position
    header = read_header(reader, (VECTOR, _COMPACT), (_ARC,))
    try:
        if header.kind == VECTOR:
            return _read_vector(reader, header)
        return _read_compact(reader, header)
    except ExampleError as error:
        reader.fail(str(error), at=begin)


def read_table_fst(reader: files.Reader) -> Fst:
    """Reads an FST of a table, binary or text.

    Raises:
        ModelFileError: the file holds something else there.
    """
    binary = binary_reader(reader)
    if binary is None:
        return read_text_fst(reader)
    fst = read_binary_fst(binary)
    reader.position = binary.position
    return fst


def binary_reader(reader: files.Reader) -> files.BinaryReader | None:
    """A reader of the binary FST that begins where a reader of a table stands; None for text.

    Kaldi does not mark FSTs in tables as binary; their first bytes tell.
    """
    if not reader.next_is(MAGIC, b" " + MAGIC):
        return None
    reader.skip_blanks()
    return files.BinaryReader(reader.data, reader.path, reader.position, reader.offset_of(0))


def _take(reader: files.BinaryReader, size: int, what: str) -> memoryview:
    """The next bytes; an error says what was expected there."""
    if size > reader.remaining:
        reader.fail(
            "the file ends too early",
            expected=f"{what} of {size} bytes",
            found=f"{reader.remaining} bytes",
        )
    start = reader.position
    reader.position = start + size
    return reader.data[start : start + size]


def check_count(reader: files.BinaryReader, count: int, size: int, what: str, *, at: int) -> None:
    """Fails if not so many elements, each of at least `size` bytes, can follow."""
    if count < 0:
        reader.fail(f"impossible number of {what}", at=at, expected="0 or more", found=str(count))
    if (missing := count * size - reader.remaining) > 0:
        reader.fail("the file ends too early", at=at, expected=f"{count} {what}",
                    found=f"{reader.remaining} bytes", missing=missing)  # fmt: skip


def read_header(reader: files.BinaryReader, kinds: Sequence[str], arcs: Sequence[str]) -> Header:
    """Reads the header of an FST.

    Args:
        reader: Where it stands.
        kinds: The types of FSTs that are known.
        arcs: The types of arcs that are known.

    Raises:
        ModelFileError: the file holds no FST there, or one of another type.
    """
    start = reader.position
    (magic,) = _INT32.unpack(_take(reader, _INT32.size, "the start of an FST"))
    if magic != _MAGIC:
        reader.fail("this is no FST", at=start, expected=f"the number {_MAGIC}", found=str(magic))
    kind = _read_type(reader, "FST", kinds)
    arc = _read_type(reader, "arcs", arcs)
    start = reader.position
    version, flags, _, begin, states, num_arcs = _HEAD.unpack(_take(reader, _HEAD.size, "a header"))
    if version != _VERSION:
        reader.fail("unknown version", at=start, expected=str(_VERSION), found=str(version))
    if flags:
        reader.fail(
            "FSTs with symbol tables or aligned data cannot be read",
            at=start + 4,
            expected="flags 0",
            found=str(flags),
        )
    # A final cost and a number of arcs, or a position, stand for each state.
    size = _STATE.size if kind == VECTOR else _INT32.size
    check_count(reader, states, size, "states", at=start + 24)
    return Header(kind, arc, begin, states, num_arcs)


def _read_type(reader: files.BinaryReader, of: str, known: Sequence[str]) -> str:
    start = reader.position
    (size,) = _INT32.unpack(_take(reader, _INT32.size, "the length of a name"))
    if not 0 < size <= _LONGEST_NAME:
        reader.fail("impossible length of a name", at=start, expected=f"1 to {_LONGEST_NAME}",
                    found=str(size))  # fmt: skip
    name = bytes(_take(reader, size, "a name")).decode("latin-1")
    if name not in known:
        expected = " or ".join(f"'{each}'" for each in known)
        reader.fail(f"unknown type of {of}", at=start, expected=expected, found=f"'{name}'")
    return name


def _read_vector(reader: files.BinaryReader, header: Header) -> Fst:
    finals, sizes, pieces = [], [], []
    for _ in range(header.states):
        start = reader.position
        final, size = _STATE.unpack(_take(reader, _STATE.size, "a state"))
        check_count(reader, size, _VECTOR_ARC.itemsize, "arcs", at=start + 4)
        finals.append(final)
        sizes.append(size)
        pieces.append(_take(reader, size * _VECTOR_ARC.itemsize, "arcs"))
    arcs = np.frombuffer(b"".join(pieces), dtype=_VECTOR_ARC)
    return Fst(
        start=header.start,
        final_costs=np.array(finals, dtype=np.float32),
        splits=np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))),
        labels=arcs["label"],
        output_labels=arcs["output"],
        costs=arcs["cost"],
        destinations=arcs["destination"],
    )


def _read_compact(reader: files.BinaryReader, header: Header) -> Fst:
    start = reader.position
    size = (header.states + 1) * _INT32.size
    positions = np.frombuffer(_take(reader, size, "positions"), dtype="<u4").astype(np.int64)
    count = int(positions[-1])
    if positions[0] != 0 or bool((np.diff(positions) < 0).any()):
        reader.fail("the positions of states do not rise from 0", at=start)
    start = reader.position
    data = _take(reader, count * _ELEMENT.itemsize, "elements")
    elements = np.frombuffer(data, dtype=_ELEMENT)
    states = np.repeat(np.arange(header.states), np.diff(positions))
    is_final = elements["label"] == _NO_LABEL
    finals = np.full(header.states, np.inf, dtype=np.float32)
    finals[states[is_final]] = elements["cost"][is_final]
    first = np.zeros(count, dtype=bool)
    first[positions[:-1][np.diff(positions) > 0]] = True
    misplaced = np.flatnonzero(is_final & ~first)
    if misplaced.size:
        at = start + int(misplaced[0]) * _ELEMENT.itemsize
        reader.fail("a final cost stands behind an arc", at=at, expected="an arc")
    arcs = elements[~is_final]
    if header.arcs not in (0, len(arcs)):
        reader.fail("the header disagrees with the arcs", at=start,
                    expected=f"{header.arcs} arcs", found=str(len(arcs)))  # fmt: skip
    return Fst(
        start=header.start,
        final_costs=finals,
        splits=positions - np.concatenate(([0], np.cumsum(is_final)))[positions],
        labels=arcs["label"],
        output_labels=arcs["label"],
        costs=arcs["cost"],
        destinations=arcs["destination"],
    )


def vector_bytes(fst: Fst) -> bytes:
    """The FST as a binary `vector`."""
    arcs = np.empty(fst.num_arcs, dtype=_VECTOR_ARC)
    arcs["label"], arcs["output"] = fst.labels, fst.output_labels
    arcs["cost"], arcs["destination"] = fst.costs, fst.destinations
    chunks = [_header_bytes(fst, VECTOR, properties(fst) | _MUTABLE, 0)]
    splits = fst.splits.tolist()
    for state, final in enumerate(fst.final_costs.tolist()):
        begin, end = splits[state : state + 2]
        chunks += (_STATE.pack(final, end - begin), arcs[begin:end].tobytes())
    return b"".join(chunks)


def compact_bytes(fst: Fst) -> bytes:
    """The FST as a binary `compact_acceptor`.

    Raises:
        ExampleError: an arc has different input and output labels.
    """
    if not fst.is_acceptor:
        raise ExampleError(
            "only an acceptor has a compact form: an arc's input and output labels differ"
        )
    is_final = np.isfinite(fst.final_costs)
    before = np.concatenate(([0], np.cumsum(is_final)))  # final costs before each state
    elements = np.empty(fst.num_arcs + int(before[-1]), dtype=_ELEMENT)
    at = np.arange(fst.num_arcs) + np.repeat(before[1:], np.diff(fst.splits))
    elements["label"][at] = fst.labels
    elements["cost"][at] = fst.costs
    elements["destination"][at] = fst.destinations
    positions = fst.splits + before
    elements[positions[:-1][is_final]] = np.array((_NO_LABEL, 0.0, -1), dtype=_ELEMENT)
    elements["cost"][positions[:-1][is_final]] = fst.final_costs[is_final]
    return b"".join(
        (
            _header_bytes(fst, _COMPACT, properties(fst), fst.num_arcs),
            positions.astype("<u4").tobytes(),
            elements.tobytes(),
        )
    )


def _header_bytes(fst: Fst, kind: str, known: int, arcs: int) -> bytes:
    names = b"".join(_INT32.pack(len(name)) + name.encode() for name in (kind, _ARC))
    head = _HEAD.pack(_VERSION, 0, known, fst.start, fst.num_states, arcs)
    return _INT32.pack(_MAGIC) + names + head


def fst_bytes(fst: Fst, *, binary: bool = True) -> bytes:
    """The FST as it stands in a table, behind its key."""
    if binary:
        return vector_bytes(fst)
    writer = files.TextWriter()
    write_text_fst(writer, fst)
    return writer.data


# ---- properties ----

_EXPANDED: Final = 1 << 0
_MUTABLE: Final = 1 << 1
_FIRST_PAIR: Final = 16


def properties(fst: Fst) -> int:
    """The property bits of OpenFst's header.

    Each property has two bits, "holds" and "does not hold"; both are 0 if it is unknown.
    Properties about cycles and reachable states are known here only if the states are in
    topological order.
    """
    inputs, outputs, sources = fst.labels, fst.output_labels, fst.sources
    num_arcs, final = np.diff(fst.splits), np.isfinite(fst.final_costs)
    costs = np.concatenate((fst.costs, fst.final_costs))
    is_sorted = fst.is_top_sorted
    entered = np.zeros(fst.num_states, dtype=bool)
    entered[fst.destinations] = True
    entered[max(fst.start, 0) :][:1] = True
    is_chain = (
        fst.start <= 0
        and (fst.destinations == sources + 1).all()
        and (num_arcs[~final] == 1).all()
        and not final[:-1].any()
    )
    holding = (
        fst.is_acceptor,
        _no_twins(sources, inputs),  # deterministic by inputs
        _no_twins(sources, outputs),
        ((inputs == 0) & (outputs == 0)).any(),  # epsilons
        (inputs == 0).any(),
        (outputs == 0).any(),
        _rises(sources, inputs),  # sorted by inputs
        _rises(sources, outputs),
        ((costs != 0.0) & np.isfinite(costs)).any(),  # weighted
        False if is_sorted else None,  # cyclic
        False if is_sorted else None,  # the start is on a cycle
        is_sorted,  # in topological order
        entered.all() if is_sorted else None,  # accessible
        (final | (num_arcs > 0)).all() if is_sorted else None,  # coaccessible
        is_chain,  # one path
        False if is_sorted else None,  # cycles with weights
    )
    bits = _EXPANDED
    for number, holds in enumerate(holding):
        if holds is not None:
            bits |= 1 << (_FIRST_PAIR + 2 * number + (not holds))
    return bits


def _no_twins(sources: npt.NDArray[np.int64], labels: npt.NDArray[np.int32]) -> bool:
    """Whether no state has two arcs with the same label."""
    pairs = np.sort((sources << 32) | labels)
    return not bool((pairs[1:] == pairs[:-1]).any())


def _rises(sources: npt.NDArray[np.int64], labels: npt.NDArray[np.int32]) -> bool:
    """Whether the labels of each state's arcs do not fall."""
    return not bool(((sources[1:] == sources[:-1]) & (labels[1:] < labels[:-1])).any())


# ---- text ----


def read_text_fst(reader: files.Reader) -> Fst:
    """Reads the text form up to the empty line behind it.

    Raises:
        ModelFileError: the file holds something else there.
    """
    begin = reader.position
    start, num_states, arcs, finals = read_lines(
        reader,
        lambda text, _: files.parse_real(text or "0"),
        num_labels=2,
        name="FST",
        kind="an FST",
        expected="source, destination, two labels, cost; or state, cost",
    )
    if start < 0:
        return Fst.empty()
    costs = np.full(num_states, np.inf)
    for state, cost in finals.items():
        costs[state] = cost
    try:
        numbers = np.array([[*arc[:2], *arc[2]] for arc in arcs], dtype=np.int64)
        sources, destinations, labels, output_labels = numbers.reshape(-1, 4).T
        return Fst.from_arcs(
            start=start,
            final_costs=costs,
            sources=sources,
            destinations=destinations,
            labels=labels,
            output_labels=output_labels,
            costs=np.array([cost for *_, cost in arcs], dtype=np.float64),
        )
    except (ExampleError, OverflowError) as error:
        reader.fail(str(error), at=begin)


def read_lines(
    reader: files.Reader,
    weight: Callable[[str, Sequence[int]], W],
    *,
    num_labels: int,
    name: str,
    kind: str,
    expected: str,
) -> tuple[int, int, list[tuple[int, int, list[int], W]], dict[int, W]]:
    """Reads the lines of arcs and final states of an FST or a lattice, up to an empty one.

    Args:
        reader: Where it stands, before the line on which they start.
        weight: From the text of a weight, "" if it is left out, and the labels of its arc, none for
            a final state. Raises a ValueError for what is none.
        num_labels: Number of labels of an arc.
        name: What is read, for messages.
        kind: The same with an article.
        expected: What a line holds, for messages.

    Returns:
        The start state, -1 if there are no lines; the number of states; source, destination, labels
        and weight of each arc; and by final state its weight.

    Raises:
        ModelFileError: the file holds something else there.
    """
    begin, start = reader.position, -1
    arcs: list[tuple[int, int, list[int], W]] = []
    finals: dict[int, W] = {}
    first = reader.line()
    if first.strip():
        reader.fail(f"a text {name} starts on a line of its own", at=begin, found=repr(first[:24]))
    at = reader.position
    while words := reader.line().split():
        numbers, rest = words[: 2 + num_labels], words[2 + num_labels :]
        try:
            state = files.parse_integer(words[0])
            if len(words) <= 2:
                finals[state] = weight(words[1] if len(words) == 2 else "", ())
            elif len(numbers) == 2 + num_labels and len(rest) <= 1:
                destination, *labels = map(files.parse_integer, numbers[1:])
                arcs.append((state, destination, labels, weight(rest[0] if rest else "", labels)))
            else:
                raise ValueError
        except ValueError:
            reader.fail(f"this is no line of {kind}", at=at, expected=expected,
                        found=repr(" ".join(words)[:48]))  # fmt: skip
        start = state if start < 0 else start
        at = reader.position
    states = [each for arc in arcs for each in arc[:2]] + list(finals)
    # Each state has a line, or a line that leads to it.
    if states and not 0 <= min(states) <= max(states) < 2 * len(states):
        reader.fail("impossible number of a state", at=begin,
                    expected=f"0 to {2 * len(states) - 1}",
                    found=str(min(states) if min(states) < 0 else max(states)))  # fmt: skip
    return start, max(states, default=-1) + 1, arcs, finals


def write_text_fst(writer: files.Writer, fst: Fst) -> None:
    """Writes the text form."""
    writer.raw(b"\n")
    order = list(range(fst.num_states))
    if fst.num_states:
        order.remove(fst.start)
        order.insert(0, fst.start)
    splits = fst.splits.tolist()
    arcs = list(
        zip(
            fst.destinations.tolist(),
            fst.labels.tolist(),
            fst.output_labels.tolist(),
            fst.costs.tolist(),
            strict=True,
        )
    )
    for state in order:
        for destination, label, output, cost in arcs[splits[state] : splits[state + 1]]:
            tail = f"\t{cost:.7g}" if cost else ""
            writer.raw(f"{state}\t{destination}\t{label}\t{output}{tail}\n".encode())
        final = float(fst.final_costs[state])
        if final != float("inf"):
            writer.raw((f"{state}\t{final:.7g}\n" if final else f"{state}\n").encode())
    writer.raw(b"\n")
