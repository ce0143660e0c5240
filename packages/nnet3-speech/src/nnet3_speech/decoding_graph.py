"""Reading decoding graphs, HCLG.fst, and checking what OpenFst and the decoders take for granted.

A graph is a file of OpenFst with arcs of the type "standard": a header, then

- in the type "vector", for each state its final cost (float32), the number of its arcs (int64), and
  the arcs;
- in the type "const", a table of states (final cost, first arc, number of arcs, of those without
  input, of those without output: float32 and uint32), and one of all arcs.

An arc is its input, its output, its cost and its next state (int32, int32, float32, int32).
"""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnet3_speech.errors import SpeechError
from nnet3_speech.values import expect

_MAGIC: Final = (2125659606).to_bytes(4, "little")
_TYPES: Final = ("vector", "const")
_NUMBERS: Final = struct.Struct("<iiQqqq")
"""Version, flags, properties, start, states, arcs: the end of a header."""
_HAS_SYMBOLS, _IS_ALIGNED = 1 | 2, 4
_ALIGNMENT: Final = 16
_ARC: Final = np.dtype(
    [("input", "<i4"), ("output", "<i4"), ("cost", "<f4"), ("next_state", "<i4")]
)
_STATE: Final = np.dtype(
    [("cost", "<f4"), ("first", "<u4"), ("arcs", "<u4"), ("no_input", "<u4"), ("no_output", "<u4")]
)
_ARCS: Final = struct.Struct("<q")
_VECTOR_STATE: Final = 4 + _ARCS.size
_MOST_WITHOUT_INPUT: Final = 1000


_Parts = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.void]]
"""Final costs (states,), how many arcs leave each state (states,), and all arcs, state by state."""


def read_graph(path: str | os.PathLike[str], num_ids: int | None = None) -> Any:
    """A decoding graph, as a `kaldifst.StdFst`.

    The file is checked before OpenFst reads it, which takes numbers of states and arcs for right,
    as decoders do.

    Args:
        path: The file.
        num_ids: How many transition-ids the model has, if inputs are to be checked, too.

    Raises:
        SpeechError: kaldi-decoder is not installed, or the file cannot be read, or is no transducer
            of the types "vector" and "const" with costs, or is damaged, or has inputs that are no
            transition-ids of the model, or a cycle of arcs without input.
    """
    try:
        import kaldi_decoder  # noqa: F401
        import kaldifst
    except ImportError as error:
        raise SpeechError(
            "finding words needs kaldi-decoder and kaldifst: pip install kaldi-decoder kaldifst "
            f"({error})"
        ) from error
    name = os.fspath(path)
    kind = graph_type(Path(path))
    if kind not in _TYPES:
        raise SpeechError(
            f"{name}: expected a graph of OpenFst's type vector or const, found {kind}"
        )
    try:
        data = np.memmap(name, np.uint8, mode="r")
    except (OSError, ValueError) as error:  # of a pipe, for example
        raise SpeechError(f"{name}: the file cannot be read: {error}") from error
    try:
        _check(*_parsed(data, kind), num_ids)
        graph = kaldifst.StdFst.read(name)
    except SpeechError as error:  # which does not name the file
        raise SpeechError(f"{name}: {error}") from error
    except MemoryError as error:
        raise SpeechError(f"{name}: the graph is too large for the memory") from error
    if graph is None:
        raise SpeechError(f"{name}: OpenFst cannot read the graph; it is damaged")
    return graph


def check_graph(graph: Any, num_ids: int) -> None:
    """Checks a graph that was not read by `read_graph`, in a file that OpenFst writes.

    Raises:
        SpeechError: see `read_graph`.
    """
    import kaldifst

    expect(graph, "graph", kaldifst.StdFst, str, os.PathLike)
    copy = kaldifst.StdVectorFst(graph)
    copy.input_symbols = copy.output_symbols = None
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph")
        if not copy.write(path):
            raise SpeechError(f"graph: it cannot be written to {path} to be checked")
        try:
            _check(*_parsed(np.fromfile(path, np.uint8), "vector"), num_ids)
        except SpeechError as error:
            raise SpeechError(f"graph: {error}") from error


def graph_type(path: Path) -> str:
    """OpenFst's name for the type of a transducer in a file.

    Raises:
        SpeechError: the file cannot be read, or is no binary file of OpenFst.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(64)
    except OSError as error:
        raise SpeechError(f"{path}: the file cannot be read: {error.strerror}") from error
    size = int.from_bytes(head[4:8], "little")
    if head[:4] != _MAGIC or not 0 < size <= 40:
        raise SpeechError(f"{path}: expected a binary file of OpenFst, found {head[:8]!r}")
    return head[8 : 8 + size].decode("ascii", "replace")


def _parsed(data: npt.NDArray[np.uint8], kind: str) -> tuple[int, _Parts]:
    """The first state, -1 if there is none, and the states and arcs of a file.

    Raises:
        SpeechError: it is no graph of costs, or has symbol tables, or another size than it says.
    """
    head = bytes(data[: 8 + len(kind) + 4 + 8 + _NUMBERS.size])
    arc_type = head[8 + len(kind) :][:12]
    if arc_type != b"\x08\0\0\0standard":
        raise SpeechError(f"expected arcs of the type 'standard', found {arc_type!r}")
    if len(head) < 8 + len(kind) + 12 + _NUMBERS.size:
        raise SpeechError(f"the file ends in its header, after {len(data)} bytes")
    version, flags, _, start, states, arcs = _NUMBERS.unpack(head[-_NUMBERS.size :])
    if flags & _HAS_SYMBOLS:
        raise SpeechError("expected a graph without symbol tables; fstsymbols removes them")
    body = len(head)
    if kind == "vector":
        return start, _vector_parts(data, body, None if states == -1 else states)
    is_aligned = version == 1 or bool(flags & _IS_ALIGNED)
    return start, _const_parts(data, body, states, arcs, is_aligned=is_aligned)


def _vector_parts(data: npt.NDArray[np.uint8], at: int, states: int | None) -> _Parts:
    """Final costs, numbers of arcs, and arcs; without a number, states end with the file."""
    begin, size = at, len(data)
    counts: list[int] = []
    view = data.data
    if states is not None and not 0 <= states * _VECTOR_STATE <= size:
        raise SpeechError(f"{states} states are not in {size} bytes")
    while len(counts) != states and (states is not None or at < size):
        if at + _VECTOR_STATE > size:
            raise SpeechError(f"the file ends in state {len(counts)}")
        (count,) = _ARCS.unpack_from(view, at + 4)
        at += _VECTOR_STATE + count * _ARC.itemsize
        if count < 0 or at > size:
            raise SpeechError(f"state {len(counts)} has {count} arcs, which are not in the file")
        counts.append(count)
    sizes = np.array(counts, np.int64)
    words = np.frombuffer(view, "<i4", (at - begin) // 4, begin)
    heads = np.cumsum(sizes * 4 + 3) - (sizes * 4 + 3)
    is_arc = np.ones(len(words), np.bool_)
    for place in range(3):
        is_arc[heads + place] = False
    return words[heads].view("<f4"), sizes, words[is_arc].view(_ARC)


def _const_parts(
    data: npt.NDArray[np.uint8], at: int, states: int, arcs: int, *, is_aligned: bool
) -> _Parts:
    """Final costs, numbers of arcs, and arcs."""
    tables = []
    for kind, count in ((_STATE, states), (_ARC, arcs)):
        at += -at % _ALIGNMENT if is_aligned else 0
        if not 0 <= count * kind.itemsize <= len(data) - at:
            raise SpeechError(f"{states} states and {arcs} arcs are not in {len(data)} bytes")
        tables.append(np.frombuffer(data.data, kind, count, at))
        at += count * kind.itemsize
    table, all_arcs = tables
    sizes = table["arcs"].astype(np.int64)
    ends = np.cumsum(sizes)
    wrong = (table["first"] != ends - sizes) & (sizes > 0)
    wrong |= np.maximum(table["no_input"], table["no_output"]) > sizes
    if wrong.any() or sizes.sum() != arcs:
        state = int(wrong.argmax()) if wrong.any() else states
        raise SpeechError(f"the arcs of state {state} are not those after the state before")
    return table["cost"], sizes, all_arcs


def _check(start: int, parts: _Parts, num_ids: int | None) -> None:
    """Checks what decoders take for right.

    Raises:
        SpeechError: a state or label is out of its range, a cost is NaN or -inf, or there is a
            cycle of arcs without input.
    """
    final_costs, sizes, arcs = parts
    states, ends = len(final_costs), np.cumsum(sizes)
    if not 0 <= start < states:
        raise SpeechError(f"the first state is {start}, of {states} states")
    most = np.iinfo(np.int32).max
    for name, largest in (
        ("next_state", states - 1),
        ("input", most if num_ids is None else num_ids),
        ("output", most),
    ):
        values = arcs[name]
        wrong = (values < 0) | (values > largest)
        if wrong.any():
            first = int(wrong.argmax())
            raise SpeechError(
                f"an arc of state {np.searchsorted(ends, first, 'right')} has the "
                f"{name.replace('_', ' ')} {values[first]}, expected 0 to {largest}"
            )
    for costs in (final_costs, arcs["cost"]):
        wrong = np.isnan(costs) | (costs == -np.inf)
        if wrong.any():
            first = int(wrong.argmax())
            state = first if costs is final_costs else np.searchsorted(ends, first, "right")
            raise SpeechError(f"state {state} has the cost {costs[first]}")
    no_input = np.flatnonzero(arcs["input"] == 0)
    if _has_cycle(np.searchsorted(ends, no_input, "right"), arcs["next_state"][no_input]):
        raise SpeechError(
            "the graph has a cycle of arcs without input, or a path of over "
            f"{_MOST_WITHOUT_INPUT} of them, on which decoders do not end"
        )


def _has_cycle(sources: npt.NDArray[np.int64], targets: npt.NDArray[np.int32]) -> bool:
    """Whether a decoder can go on and on, or for very long, along arcs between some states."""
    for _ in range(_MOST_WITHOUT_INPUT):
        if not len(sources):
            return False
        goes_on = np.isin(targets, sources)
        sources, targets = sources[goes_on], targets[goes_on]
    return True
