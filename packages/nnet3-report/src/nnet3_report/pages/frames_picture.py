"""The frames of each layer that a request computes, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Nnet
from nnet3_descriptors.indexes import NO_TIME, T
from nnet3_graph import ComputationGraph

from nnet3_report.curves import COLOURS
from nnet3_report.layers import Layer

WIDTH, NUMBERS = 1000, 60
"""Pixels of the picture, and of the numbers on its right."""
LETTER, MOST_LETTERS = 7, 32
"""Pixels of a letter, and the most letters of a name."""
ROW, TOP = 17, 24
"""Pixels of a layer's row, and above the first."""

Frames = npt.NDArray[np.int64]

STYLE = (
    COLOURS
    + """
.nnet3-frames { display: block; max-width: 100%; height: auto; }
.nnet3-frames text { fill: currentColor; font: 12px system-ui, "Segoe UI", Helvetica, sans-serif; }
.nnet3-frames .name, .nnet3-frames .count { text-anchor: end; }
.nnet3-frames .tick { text-anchor: middle; fill-opacity: .7; }
.nnet3-frames rect { fill: currentColor; fill-opacity: .5; }
.nnet3-frames .asked rect { fill: var(--blue); fill-opacity: 1; }
.nnet3-frames line { stroke: currentColor; stroke-opacity: .15; }
"""
)


def frames_svg(nnet: Nnet, graph: ComputationGraph, layers: Sequence[Layer]) -> str:
    """Draws a row for each layer, and in it a block for each frame that the request computes.

    Args:
        nnet: The network.
        graph: The computation graph of the request.
        layers: The layers of the network, from top to bottom.

    Returns:
        An SVG element; "" if the request computes no frame.
    """
    rows = [(layer, _frames_of(nnet, graph, layer)) for layer in layers]
    rows = [(layer, frames) for layer, frames in rows if len(frames)]
    if not rows:
        return ""
    first = min(int(frames[0]) for _, frames in rows)
    last = max(int(frames[-1]) for _, frames in rows)
    letters = max(len(_name(layer)) for layer, _ in rows)
    left = 20 + LETTER * letters
    step = (WIDTH - left - NUMBERS) / (last + 1 - first)
    height = TOP + ROW * len(rows) + 6

    def x_of(frame: float) -> float:
        return left + (frame - first) * step

    shapes = [f'<text class="name" x="{left - 10:.1f}" y="14">frame</text>']
    shapes += _axis(first, last, step, x_of, height)
    for number, (layer, frames) in enumerate(rows):
        y, kind = TOP + ROW * number, "row" if layer.kind == "layer" else "asked"
        shapes.append(f'<g class="{kind}"><title>{_described(layer, frames)}</title>')
        name = escape(_name(layer))
        shapes.append(f'<text class="name" x="{left - 10:.1f}" y="{y + 12}">{name}</text>')
        shapes += _blocks(frames, step, x_of, y)
        shapes.append(
            f'<text class="count" x="{WIDTH - 4}" y="{y + 12}">{len(frames):,}</text></g>'
        )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="nnet3-frames" width="{WIDTH}" '
        f'height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">'
    )
    title = f"<title>The frames of each layer that are computed, {first} to {last}</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *shapes, "</svg>"])


def _frames_of(nnet: Nnet, graph: ComputationGraph, layer: Layer) -> Frames:
    """The frames of a layer's last node, (frames,) ascending, without rows that only pad."""
    times = graph.index_set(nnet.node_index(layer.nodes[-1])).indexes[:, T]
    return np.unique(times[times != NO_TIME]).astype(np.int64)


def _axis(
    first: int, last: int, step: float, x_of: Callable[[float], float], height: int
) -> Iterator[str]:
    """Lines at round frames, about eight of them."""
    rounds = (1, 2, 5, 10, 20, 50, 100, 200, 500, last + 2 - first)
    every = next(n for n in rounds if n * step > 80)
    for frame in range(-(-first // every) * every, last + 1, every):
        x = x_of(frame + 0.5)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{height}"/>'
        yield f'<text class="tick" x="{x:.1f}" y="14">{frame}</text>'


def _name(layer: Layer) -> str:
    name = layer.name
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


def _described(layer: Layer, frames: Frames) -> str:
    what = "frame" if len(frames) == 1 else "frames"
    return f"{escape(layer.name)}: {len(frames):,} {what}, {frames[0]} to {frames[-1]}"


def _blocks(frames: Frames, step: float, x_of: Callable[[float], float], y: float) -> Iterator[str]:
    """A block for each run of frames, or for each frame if there is room."""
    gap = min(1.0, step / 4)
    ends = np.arange(len(frames) - 1)
    if step < 3:  # too narrow for blocks of their own
        distances = np.diff(frames)
        ends = np.flatnonzero((distances > 1) & (distances * step > 1.5))
    begins = frames[np.concatenate([[0], ends + 1]).astype(int)]
    for begin, end in zip(begins, frames[np.append(ends, len(frames) - 1)], strict=True):
        x, width = x_of(begin), (end + 1 - begin) * step - gap
        yield f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{ROW - 5}"/>'
