"""Boxes from top to bottom with what each of them reads, as SVG: the layers of a network, or steps.

A short line leads to a box from the box above it. If it reads a box further up, an arc on the right
leads from there. If it reads itself or a box below (a recurrence), an arc on the left does. Arcs
that are long lie further out than the shorter ones that they span, so none crosses a box.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from html import escape

import attrs

from nnet3_report.curves import COLOURS
from nnet3_report.layers import Layer, Read

BOX_WIDTH, BOX_HEIGHT, GAP = 420, 44, 34
LETTER = 7
"""The width of a letter of 12 pixels, in a wide font."""
LANE = 22
"""The distance between neighbouring arcs."""
MARGIN = 16

STYLE = (
    COLOURS
    + """
.nnet3-network { display: block;
  font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
.nnet3-network text { fill: currentColor; font-size: 13px; }
.nnet3-network rect { fill: currentColor; fill-opacity: .05; stroke: currentColor;
  stroke-opacity: .25; }
.nnet3-network .input rect, .nnet3-network .output rect {
  fill: var(--blue); fill-opacity: .15; stroke: var(--blue);
  stroke-opacity: 1; }
.nnet3-network .more rect { fill: none; stroke-dasharray: 5 4; stroke-opacity: .5; }
.nnet3-network .name { font-weight: 600; }
.nnet3-network .parts, .nnet3-network .parameters, .nnet3-network .dims { fill-opacity: .7;
  font-size: 12px; }
.nnet3-network .dims, .nnet3-network .parameters, .nnet3-network .before { text-anchor: end; }
.nnet3-network .label { fill: var(--blue); font-size: 12px; }
.nnet3-network .edge { fill: none; stroke: currentColor; stroke-opacity: .55; stroke-width: 1.5; }
.nnet3-network .tip { fill: currentColor; fill-opacity: .6; }
.nnet3-network .tip.recurrent { fill: var(--orange); fill-opacity: 1; }
.nnet3-network .edge.recurrent { stroke: var(--orange); stroke-opacity: 1; }
.nnet3-network .optional { stroke-dasharray: 5 4; }
"""
)
"""Only this drawing uses these names."""


@attrs.frozen(kw_only=True)
class Box:
    """A box of a drawing, with two lines of text.

    Attributes:
        name: The first line.
        corner: What stands at the right end of the first line.
        below: The second line.
        below_corner: What stands at the right end of the second line.
        kind: "layer"; "input" or "output", which have a colour; or "more", for boxes that are left
            out.
        title: The text that a browser shows when the mouse points at the box.
    """

    name: str
    corner: str = ""
    below: str = ""
    below_corner: str = ""
    kind: str = "layer"
    title: str = ""


@attrs.frozen
class Arc:
    """The reads of a box from another box, or from itself.

    Attributes:
        source: The number of the box that is read.
        target: The number of the box that reads.
        label: What stands at the arc; "0" for nothing.
        is_dashed: Whether everything in it is optional.
    """

    source: int
    target: int
    label: str
    is_dashed: bool

    @property
    def first(self) -> int:
        """The upper one of both."""
        return min(self.source, self.target)

    @property
    def last(self) -> int:
        """The lower one of both."""
        return max(self.source, self.target)


def network_svg(layers: Sequence[Layer]) -> str:
    """Draws layers as an SVG element; see `boxes_svg`."""
    number_of = {node: number for number, layer in enumerate(layers) for node in layer.nodes}
    arcs: list[Arc] = []
    for target, layer in enumerate(layers):
        by_source: dict[int, list[Read]] = {}
        for read in layer.reads:
            by_source.setdefault(number_of[read.source], []).append(read)
        for source, reads in by_source.items():
            label = ", ".join(read.text for read in reads)
            arcs.append(Arc(source, target, label, all(read.is_optional for read in reads)))
    return boxes_svg([_box_of(layer) for layer in layers], arcs, "The layers of the network")


def boxes_svg(boxes: Sequence[Box], arcs: Sequence[Arc], title: str) -> str:
    """Draws boxes, one below the other, and what they read, as an SVG element.

    It can be a file, or part of an HTML page, whose colour of text it takes; a page may set
    `--nnet3-accent` and `--nnet3-recurrent` for the colours of labels and recurrences.

    Args:
        boxes: The boxes, from top to bottom.
        arcs: Their reads; each pair of boxes at most once.
        title: A description of the drawing, for people who cannot see it.
    """
    below = [arc for arc in arcs if arc.source == arc.target - 1]
    right = [arc for arc in arcs if arc.source < arc.target - 1]
    left = [arc for arc in arcs if arc.source >= arc.target]
    right_places, right_width = _places(right)
    left_places, left_width = _places(left)
    width = left_width + BOX_WIDTH + right_width
    height = 2 * MARGIN + len(boxes) * (BOX_HEIGHT + GAP) - GAP
    shapes = [
        *(shape for arc in below for shape in _line(arc, left_width + BOX_WIDTH / 2)),
        *(
            shape
            for arc, out in zip(right, right_places, strict=True)
            for shape in _arc(arc, left_width + BOX_WIDTH, out)
        ),
        *(
            shape
            for arc, out in zip(left, left_places, strict=True)
            for shape in _arc(arc, left_width, -out)
        ),
        *(shape for number, box in enumerate(boxes) for shape in _box(box, number, left_width)),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="nnet3-network" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" role="img">'
    )
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", *shapes, "</svg>"]
    )


def lanes(arcs: Sequence[Arc]) -> list[int]:
    """Chooses the distance of each arc, so that overlapping arcs don't meet."""
    chosen = [0] * len(arcs)
    taken: list[tuple[int, int, int]] = []
    for number in sorted(range(len(arcs)), key=lambda n: arcs[n].last - arcs[n].first):
        arc = arcs[number]
        used = {lane for first, last, lane in taken if first < arc.last and arc.first < last}
        used |= {lane for first, last, lane in taken if (first, last) == (arc.first, arc.last)}
        chosen[number] = next(lane for lane in range(len(arcs)) if lane not in used)
        taken.append((arc.first, arc.last, chosen[number]))
    return chosen


def _places(arcs: Sequence[Arc]) -> tuple[list[int], int]:
    """How far out each arc lies, and how wide all are; labels stand between the lanes."""
    chosen = lanes(arcs)
    widths = [0] * (1 + max(chosen, default=-1))
    for arc, lane in zip(arcs, chosen, strict=True):
        widths[lane] = max(widths[lane], 8 + 7 * len(arc.label) if arc.label != "0" else 0)
    ends = list(itertools.accumulate((LANE + width for width in widths), initial=LANE))
    return [ends[lane] for lane in chosen], MARGIN + ends[-1]


def _top(number: int) -> float:
    return MARGIN + number * (BOX_HEIGHT + GAP)


def _box_of(layer: Layer) -> Box:
    if layer.kind == "layer":
        dims, below = f"{layer.input_dim} → {layer.output_dim}", " → ".join(layer.parts)
    else:
        dims, below = f"{layer.output_dim}", f"{layer.kind} of the network"
    return Box(
        name=layer.name,
        corner=dims,
        below=below,
        below_corner=f"{layer.num_parameters:,}" if layer.num_parameters else "",
        kind=layer.kind,
        title=", ".join(layer.nodes),
    )


def _box(box: Box, number: int, left: float) -> Iterator[str]:
    y, right = _top(number), left + BOX_WIDTH - 12
    size = f'width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
    yield f'<g class="box {box.kind}">'
    yield f"<title>{escape(box.title)}</title>"
    yield f'<rect x="{left}" y="{y}" {size} rx="6"/>'
    yield _text(left + 12, y + 18, _cut(box.name, 36), "name")
    yield _text(right, y + 18, box.corner, "dims")
    if box.below:
        room = (BOX_WIDTH - 32) // LETTER - len(box.below_corner)
        yield _text(left + 12, y + 35, _cut(box.below, room), "parts")
    if box.below_corner:
        yield _text(right, y + 35, box.below_corner, "parameters")
    yield "</g>"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>'


def _line(arc: Arc, x: float) -> Iterator[str]:
    top, bottom = _top(arc.source) + BOX_HEIGHT, _top(arc.target)
    yield f'<path class="{_kind(arc)}" d="M {x:g} {top:g} V {bottom:g}"/>'
    yield f'<path class="tip" d="M {x:g} {bottom:g} l -4 -8 h 8 z"/>'
    if arc.label != "0":
        yield _text(x + 8, (top + bottom) / 2 + 4, arc.label, "label")


def _arc(arc: Arc, x: float, out: float) -> Iterator[str]:
    """An arc from the side of one box to the side of another, or of the same."""
    start = _top(arc.source) + BOX_HEIGHT * 0.7
    end = _top(arc.target) + BOX_HEIGHT * 0.3
    bend = x + out
    yield (
        f'<path class="{_kind(arc)}{" recurrent" if out < 0 else ""}" '
        f'd="M {x:g} {start:g} C {bend:g} {start:g} {bend:g} {start:g} {bend:g} '
        f'{(start + end) / 2:g} S {bend:g} {end:g} {x:g} {end:g}"/>'
    )
    side = 8 if out > 0 else -8
    recurrent = "" if out > 0 else " recurrent"
    yield f'<path class="tip{recurrent}" d="M {x:g} {end:g} l {side} -4 v 8 z"/>'
    if arc.label != "0":
        kind = "label" if out > 0 else "label before"
        yield _text(bend + (5 if out > 0 else -5), (start + end) / 2 + 4, arc.label, kind)


def _kind(arc: Arc) -> str:
    return "edge optional" if arc.is_dashed else "edge"
