"""Phone lattices in Kaldi's tables: alternatives of phones with their durations.

A lattice is an FST whose weights are a cost of the graph, a cost of the acoustics, and
transition-ids, one for each frame. In binary it is an OpenFst `vector` with arcs of type
`compactlattice44` (`compactlattice84` with costs of 64 bits); a weight is the two costs, the number
of transition-ids (32 bits), and these. In text it is a line for each arc (source, destination,
phone, weight) and for each final state (state, weight); a weight is `cost,cost,id_id_...`.

lattice-align-phones --replace-output-symbols=true makes such lattices.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final

import attrs
from nnet3_descriptors.files import BinaryReader, Reader, parse_integer, parse_real

from nnet3_training.chain.fsts import files, fst
from nnet3_training.errors import ExampleError

_COSTS: Final = {"compactlattice44": struct.Struct("<ff"), "compactlattice84": struct.Struct("<dd")}
_INT32: Final = struct.Struct("<i")
_INT64: Final = struct.Struct("<q")
_ONE: Final = "0,0,"
"""The weight that may be left out in text."""


@attrs.frozen(kw_only=True, eq=False)
class PhoneLattice:
    """Alternatives of phones with the frames that each takes.

    Attributes:
        graph: An acceptor of phones, with the costs of the graph only.
        lengths: For each state, the number of input frames of each of its arcs.
        final_lengths: For each state, the number of input frames after it if a path ends there.
    """

    graph: fst.Graph
    lengths: list[list[int]]
    final_lengths: list[int]

    def times(self) -> list[int]:
        """The first frame of each state; -1 for states that cannot be reached.

        One more element at the end is the number of input frames.

        Raises:
            ExampleError: it has no path, arcs lead backwards or read no phone, paths to a state
                differ in their frames, or one ends before the last frame.
        """
        graph = self.graph
        times = [0] + [-1] * (graph.num_states - 1) if graph.num_states else []
        ends: dict[int, int] = {}
        for state, arcs in enumerate(graph.arcs):
            for arc, frames in zip(arcs, self.lengths[state], strict=True):
                if arc.label == fst.EPSILON:
                    raise ExampleError(f"the lattice has an arc without a phone, at state {state}")
                if arc.destination <= state:
                    raise ExampleError(
                        f"the lattice is not in topological order: an arc leads from state {state} "
                        f"to state {arc.destination}"
                    )
                if times[state] < 0:
                    continue
                time = times[state] + frames
                if times[arc.destination] not in (-1, time):
                    raise ExampleError(
                        f"paths to state {arc.destination} of the lattice take "
                        f"{times[arc.destination]} and {time} frames"
                    )
                times[arc.destination] = time
            if times[state] >= 0 and math.isfinite(graph.finals[state]):
                ends[state] = times[state] + self.final_lengths[state]
        num_frames = max(ends.values(), default=0)
        if num_frames == 0:
            raise ExampleError("the lattice has no path with a frame")
        for state in ends:
            if times[state] != num_frames:
                raise ExampleError(
                    f"final state {state} of the lattice is at frame {times[state]} of "
                    f"{num_frames}; are its phones aligned?"
                )
        return [*times, num_frames]

    def with_scaled_costs(self, scale: float) -> fst.Graph:
        """The phones with costs multiplied by a number and pushed to the start.

        After pushing, the cheapest way from each state to an end costs 0, so the cost of a path is
        its distance from the best path.
        """
        arcs = [
            [arc._replace(cost=arc.cost * scale if scale else 0.0) for arc in each]
            for each in self.graph.arcs
        ]
        finals = [
            (each * scale if scale else 0.0) if math.isfinite(each) else each
            for each in self.graph.finals
        ]
        graph = fst.Graph(arcs, finals).trimmed()  # keeps the order, so arcs lead forwards
        if scale == 0.0:
            return graph
        left = [math.inf] * graph.num_states
        for state in reversed(range(graph.num_states)):
            ways = [arc.cost + left[arc.destination] for arc in graph.arcs[state]]
            left[state] = min(ways, default=math.inf)
            left[state] = min(left[state], graph.finals[state])
        return fst.Graph(
            [
                [
                    arc._replace(cost=arc.cost + left[arc.destination] - left[state])
                    for arc in graph.arcs[state]
                ]
                for state in range(graph.num_states)
            ],
            [
                each - left[state] if math.isfinite(each) else each
                for state, each in enumerate(graph.finals)
            ],
        )


def read_phone_lattice(reader: Reader) -> PhoneLattice:
    """Reads a lattice of phones.

    Raises:
        ModelFileError: the file holds no lattice there; the error says where.
    """
    begin = reader.position
    binary = files.binary_reader(reader)
    if binary is None:
        start, num_states, arcs, finals = files.read_lines(
            reader,
            _text_weight,
            num_labels=1,
            name="lattice",
            kind="a phone lattice",
            expected="source, destination, phone, weight; or state, weight",
        )
    else:
        start, num_states, arcs, finals = _read_binary(binary)
        reader.position = binary.position
    if start > 0 or (start < 0 and num_states):
        reader.fail("impossible start of a lattice", at=begin, expected="state 0", found=str(start))
    ends = [finals.get(state, (math.inf, 0)) for state in range(num_states)]
    graph = fst.Graph([[] for _ in ends], [cost for cost, _ in ends])
    lengths: list[list[int]] = [[] for _ in ends]
    for state, destination, (phone,), (cost, length) in arcs:
        graph.arcs[state].append(fst.Arc(phone, cost, destination))
        lengths[state].append(length)
    return PhoneLattice(graph=graph, lengths=lengths, final_lengths=[length for _, length in ends])


# ---- binary ----


Weight = tuple[float, int]
"""The cost of the graph, infinite where no path ends, and the number of transition-ids."""


def _read_binary(
    reader: BinaryReader,
) -> tuple[int, int, list[tuple[int, int, list[int], Weight]], dict[int, Weight]]:
    """Reads what `files.read_lines` reads of a text."""
    header = files.read_header(reader, (files.VECTOR,), tuple(_COSTS))
    costs = _COSTS[header.arc]

    def weight() -> Weight:
        at = reader.position
        graph, acoustic = _unpack(reader, costs)
        length = _integer(reader)
        files.check_count(reader, length, _INT32.size, "transition-ids", at=at + costs.size)
        if math.isnan(graph) or math.isnan(acoustic):
            reader.fail("a cost is not a number", at=at)
        reader.position += length * _INT32.size
        return (math.inf if math.isinf(acoustic) else graph), length

    arcs: list[tuple[int, int, list[int], Weight]] = []
    finals: dict[int, Weight] = {}
    for state in range(header.states):
        finals[state] = weight()
        at = reader.position
        count = int(_unpack(reader, _INT64)[0])
        files.check_count(reader, count, costs.size + 4 * _INT32.size, "arcs", at=at)
        for _ in range(count):
            at = reader.position
            label, _ = _integer(reader), _integer(reader)
            cost, length = weight()
            destination = _integer(reader)
            if label < 0 or not 0 <= destination < header.states or math.isinf(cost):
                reader.fail(
                    "this is no arc",
                    at=at,
                    expected=f"a phone, a cost, and a state of {header.states}",
                    found=f"phone {label}, cost {cost:g}, state {destination}",
                )
            arcs.append((state, destination, [label], (cost, length)))
    return header.start, header.states, arcs, finals


def _integer(reader: BinaryReader) -> int:
    return int(_unpack(reader, _INT32)[0])


def _unpack(reader: BinaryReader, form: struct.Struct) -> tuple[float, ...]:
    if form.size > reader.remaining:
        reader.fail(
            "the file ends too early",
            expected=f"{form.size} bytes",
            found=f"{reader.remaining} bytes",
        )
    reader.position += form.size
    return form.unpack_from(reader.data, reader.position - form.size)


# ---- text ----


def _text_weight(text: str, phones: Sequence[int]) -> Weight:
    """The weight of an arc, or, without phones, of the end of a path.

    Raises:
        ValueError: this is not a weight, or an arc has no phone or an infinite cost.
    """
    graph, acoustic, ids = (text or _ONE).split(",")
    cost, other = parse_real(graph), parse_real(acoustic)
    if math.isnan(cost) or math.isnan(other):
        raise ValueError
    if math.isinf(other):
        cost = math.inf
    if phones and (phones[0] < 0 or math.isinf(cost)):
        raise ValueError
    return cost, len([parse_integer(each) for each in ids.split("_")]) if ids else 0
