"""The steps of a request, and these as boxes with arrows to those that read them, as SVG.

A step is rows that are computed together.

The steps of a layer are one box, since each of them reads only the one before. In a recurrence the
steps of a layer repeat, in rounds. The first two rounds and the last have separate boxes, and one
box stands for all rounds between.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from nnet3_compiler import Compiler
from nnet3_computation import ComputationRequest
from nnet3_descriptors import ComponentInputNode, Nnet
from nnet3_descriptors.indexes import NO_TIME, T
from nnet3_graph import ComputationGraph

from nnet3_report.layers import Layer
from nnet3_report.svg import Arc, Box, boxes_svg

Ids = npt.NDArray[np.int64]


class Step(NamedTuple):
    """A matrix of rows of one node that are computed together.

    Attributes:
        node: The name of the node.
        rows: Number of rows, with those that only pad.
        cols: Number of columns.
        frames: The frames of its rows, ascending, each once.
        reads: The numbers of the steps that it reads, from 0, ascending.
    """

    node: str
    rows: int
    cols: int
    frames: tuple[int, ...]
    reads: tuple[int, ...]


class StepFacts(NamedTuple):
    """The steps of a request that have rows, in the order of computation.

    Attributes:
        steps: The steps.
        rows_read: (reads, 3) int64: for each row of a step that another step reads, the step that
            reads, the step that is read, and the number of the row among all rows of the graph.
    """

    steps: tuple[Step, ...]
    rows_read: Ids


def step_facts(nnet: Nnet, request: ComputationRequest, graph: ComputationGraph) -> StepFacts:
    """Finds the steps of a request, and the steps that each of them reads.

    Args:
        nnet: The network.
        request: The request.
        graph: Its computation graph.

    Raises:
        CompilationError: The recurrence of the network has no order of computation.
    """
    steps = Compiler(nnet, request, graph).make_steps()
    kept = np.flatnonzero(steps.count)
    number_of = np.full(len(steps) + 1, -1)  # the last for cindexes that no step has
    number_of[kept] = np.arange(len(kept))
    of_cindex = number_of[steps.step_of_cindex]
    readers = np.repeat(np.arange(graph.num_cindexes), np.diff(graph.dependency_splits))
    found = np.stack(
        [of_cindex[readers], of_cindex[graph.dependencies], graph.dependencies.astype(np.int64)]
    )
    rows_read = _distinct(found[:, (found[0] >= 0) & (found[1] >= 0) & (found[0] != found[1])])
    pairs = rows_read[:, :2]
    pairs = pairs[_begins(pairs)]
    ends = np.searchsorted(pairs[:, 0], np.arange(len(kept) + 1))
    names = nnet.node_names
    described = []
    for number, step in enumerate(kept.tolist()):
        name, times = names[steps.node[step]], steps.indexes[steps.rows_of(step), T]
        described.append(
            Step(
                node=name,
                rows=int(steps.count[step]),
                cols=nnet.node_dim(name),
                frames=tuple(np.unique(times[times != NO_TIME]).tolist()),
                reads=tuple(pairs[ends[number] : ends[number + 1], 1].tolist()),
            )
        )
    return StepFacts(steps=tuple(described), rows_read=rows_read)


def _distinct(columns: Ids) -> Ids:
    """The distinct columns of a (3, n) array, sorted, as (rows, 3)."""
    order = np.lexsort(columns[::-1])
    rows: Ids = columns[:, order].T
    distinct: Ids = rows[_begins(rows)]
    return distinct


def _begins(rows: Ids) -> npt.NDArray[np.bool_]:
    """Where a row differs from the one before."""
    differs = (rows[1:] != rows[:-1]).any(axis=1)
    return np.concatenate([[True], differs])[: len(rows)]


FIRST_ROUNDS = 2
"""The number of rounds of a recurrence that are drawn before those that are left out."""

MOST_BOXES = 300
"""The most boxes of the drawing."""


class StepsPicture(NamedTuple):
    """The drawing of steps.

    Attributes:
        svg: An SVG element.
        has_rounds: Whether rounds of a recurrence are left out.
        has_parts: Whether a label says that only some rows are read.
        missing: The number of boxes that are not drawn, since there are too many.
    """

    svg: str
    has_rounds: bool
    has_parts: bool
    missing: int


class _Place(NamedTuple):
    """A step of a layer.

    Attributes:
        layer: The number of the layer.
        round: Number of steps of the same node before it.
        rounds: The number of rounds of its recurrence; 1 outside of recurrences.
        is_drawn: Whether its round is drawn.
    """

    layer: int
    round: int
    rounds: int
    is_drawn: bool


def steps_picture(nnet: Nnet, facts: StepFacts, layers: Sequence[Layer]) -> StepsPicture:
    """Draws the steps of a request.

    Args:
        nnet: The network.
        facts: The steps.
        layers: The layers of the network, from top to bottom.
    """
    places = _places(nnet, facts.steps, layers)
    boxes = _grouped(places)
    shown = boxes[:MOST_BOXES]
    arcs = _arcs(facts, places, shown)
    drawn = []
    for box in shown:
        place = places[box[0]]
        if place.is_drawn:
            which = f"round {place.round + 1:,} of {place.rounds:,}" if place.rounds > 1 else ""
            drawn.append(_box(box, facts.steps, layers[place.layer], which))
        else:
            drawn.append(_more(box, facts.steps))
    return StepsPicture(
        svg=boxes_svg(drawn, arcs, "The steps of the request"),
        has_rounds=any(box.kind == "more" for box in drawn),
        has_parts=any(arc.label != "0" for arc in arcs),
        missing=len(boxes) - len(shown),
    )


def _places(nnet: Nnet, steps: Sequence[Step], layers: Sequence[Layer]) -> list[_Place]:
    layer_of = {node: number for number, layer in enumerate(layers) for node in layer.nodes}
    for node, after in zip(nnet.nodes, nnet.nodes[1:], strict=False):
        if isinstance(node, ComponentInputNode):
            layer_of[node.name] = layer_of[after.name]
    seen: Counter[str] = Counter()
    found = []
    for step in steps:
        found.append((layer_of[step.node], seen[step.node]))
        seen[step.node] += 1
    last = _last_rounds(layers, found)
    return [
        _Place(
            layer=layer,
            round=number,
            rounds=last[layer] + 1,
            is_drawn=not FIRST_ROUNDS <= number < last[layer],
        )
        for layer, number in found
    ]


def _last_rounds(layers: Sequence[Layer], found: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The last round of each layer, or of the recurrence that it belongs to."""
    last: dict[int, int] = defaultdict(int)
    for layer, number in found:
        last[layer] = max(last[layer], number)
    number_of = {node: number for number, layer in enumerate(layers) for node in layer.nodes}
    recurrences: list[list[int]] = []  # first and last layer of each
    for begin, end in sorted(
        (target, number_of[read.source])
        for target, layer in enumerate(layers)
        for read in layer.reads
        if number_of[read.source] >= target
    ):
        if recurrences and begin <= recurrences[-1][1]:
            recurrences[-1][1] = max(recurrences[-1][1], end)
        else:
            recurrences.append([begin, end])
    for begin, end in recurrences:
        most = max(last[layer] for layer in range(begin, end + 1))
        last.update({layer: most for layer in range(begin, end + 1) if last[layer]})
    return last


def _grouped(places: Sequence[_Place]) -> list[list[int]]:
    """The steps of each box: those of a layer in a round, or a run of steps not drawn alone."""
    boxes: list[list[int]] = []
    box_of: dict[tuple[int, int], list[int]] = {}
    for number, place in enumerate(places):
        if not place.is_drawn:
            if boxes and number and boxes[-1][-1] == number - 1 and not places[number - 1].is_drawn:
                boxes[-1].append(number)
            else:
                boxes.append([number])
            continue
        key = place.layer, place.round
        if key not in box_of:
            box_of[key] = []
            boxes.append(box_of[key])
        box_of[key].append(number)
    return boxes


def _arcs(facts: StepFacts, places: Sequence[_Place], boxes: Sequence[Sequence[int]]) -> list[Arc]:
    """What each box reads from others; the label says so if it does not read all rows."""
    box_of = np.full(len(facts.steps), -1)
    for number, box in enumerate(boxes):
        box_of[list(box)] = number
    reader, source = box_of[facts.rows_read[:, 0]], box_of[facts.rows_read[:, 1]]
    is_read = (reader >= 0) & (source >= 0) & (reader != source)
    read = np.unique(
        np.stack([reader[is_read], source[is_read], facts.rows_read[is_read, 2]], axis=1), axis=0
    )
    rows: Mapping[tuple[int, int], int] = Counter(map(tuple, read[:, :2].tolist()))
    arcs = []
    for (to, of), count in rows.items():
        last = facts.steps[boxes[of][-1]]
        is_whole = count >= last.rows or not (
            places[boxes[to][0]].is_drawn and places[boxes[of][0]].is_drawn
        )
        label = "0" if is_whole else f"{count:,} of {last.rows:,}"
        arcs.append(Arc(of, to, label, is_dashed=False))
    return arcs


def _box(box: Sequence[int], steps: Sequence[Step], layer: Layer, which: str) -> Box:
    """The box of the steps of a layer, in one of several rounds or in the only one."""
    last = steps[box[-1]]
    name = layer.name
    if which and last.frames:
        name += f", t = {last.frames[0]}"
        name += f" to {last.frames[-1]}" if len(last.frames) > 1 else ""
    return Box(
        name=name,
        corner=f"{last.rows:,} \N{MULTIPLICATION SIGN} {last.cols}",
        below=which or described_frames(last.frames),
        below_corner=_numbers(box),
        kind=layer.kind,
        title=", ".join(f"{number + 1}: {steps[number].node}" for number in box),
    )


def _more(box: Sequence[int], steps: Sequence[Step]) -> Box:
    nodes = {steps[number].node for number in box}
    rounds = max(Counter(steps[number].node for number in box).values())
    return Box(
        name=f"{rounds:,} more round{'s' if rounds > 1 else ''}",
        corner=f"{len(box):,} steps",
        below=f"of {len(nodes):,} nodes",
        below_corner=_numbers(box),
        kind="more",
        title=", ".join(sorted(nodes)),
    )


def _numbers(box: Sequence[int]) -> str:
    """The numbers of steps, from 1."""
    if len(box) == 1:
        return f"step {box[0] + 1:,}"
    if box[-1] - box[0] >= len(box):  # other steps are between
        return f"{len(box):,} steps from {box[0] + 1:,}"
    joint = ", " if len(box) == 2 else " to "
    return f"steps {box[0] + 1:,}{joint}{box[-1] + 1:,}"


def described_frames(frames: Sequence[int]) -> str:
    """Returns frames as text, such as "frames 0 to 48, every 3 frames"."""
    if len(frames) == 0:
        return "no frame"
    if len(frames) == 1:
        return f"frame {frames[0]}"
    which = f"frames {frames[0]} to {frames[-1]}"
    steps = set(np.diff(frames).tolist())
    if steps == {1}:
        return which
    return (
        f"{which}, every {steps.pop()} frames" if len(steps) == 1 else f"{which}, not all of them"
    )
