"""Which frames of each layer a request computes, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Nnet
from nnet3_descriptors.drawing import Layer
from nnet3_descriptors.indexes import NO_TIME, T
from nnet3_graph import ComputationGraph

WIDTH, NAMES, NUMBERS = 1000, 190, 60
"""Pixels of the picture, of the names on its left and of the numbers on its right."""
ROW, TOP = 17, 24
"""Pixels of a layer's row, and above the first."""

Frames = npt.NDArray[np.int64]

STYLE = """
.nnet3-frames { display: block; max-width: 100%; height: auto; }
.nnet3-frames text { fill: currentColor; font: 12px system-ui, "Segoe UI", Helvetica, sans-serif; }
.nnet3-frames .name, .nnet3-frames .count { text-anchor: end; }
.nnet3-frames .tick { text-anchor: middle; fill-opacity: .7; }
.nnet3-frames rect { fill: currentColor; fill-opacity: .5; }
.nnet3-frames .asked rect { fill: var(--nnet3-accent, #2778c4); fill-opacity: 1; }
.nnet3-frames line { stroke: currentColor; stroke-opacity: .15; }
"""


def frames_svg(nnet: Nnet, graph: ComputationGraph, layers: Sequence[Layer]) -> str:
    """Draws a row for each layer, and in it a block for each frame that the request computes.

    Args:
        nnet: The network.
        graph: What the outputs of the request depend on.
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
    step = (WIDTH - NAMES - NUMBERS) / (last + 1 - first)
    height = TOP + ROW * len(rows) + 6
    shapes = [
        *_axis(first, last, step, height),
        *(shape for n, row in enumerate(rows) for shape in _row(*row, TOP + ROW * n, first, step)),
    ]
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


def _axis(first: int, last: int, step: float, height: int) -> Iterator[str]:
    """Lines at round frames, about eight of them."""
    yield f'<text class="name" x="{NAMES}" y="14">frame</text>'
    every = next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, last + 2 - first) if n * step > 80)
    for frame in range(-(-first // every) * every, last + 1, every):
        x = NAMES + 10 + (frame + 0.5 - first) * step
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{height}"/>'
        yield f'<text class="tick" x="{x:.1f}" y="14">{frame}</text>'


def _row(layer: Layer, frames: Frames, y: float, first: int, step: float) -> Iterator[str]:
    """The name, a block for each run of frames, and the number of frames."""
    count = f"{len(frames):,}"
    yield f'<g class="{"row" if layer.kind == "layer" else "asked"}">'
    yield f"<title>{escape(layer.name)}: {count} frames, {frames[0]} to {frames[-1]}</title>"
    name = layer.name if len(layer.name) < 25 else f"{layer.name[:23]}…"
    yield f'<text class="name" x="{NAMES}" y="{y + 12}">{escape(name)}</text>'
    gap = min(1.0, step / 4)
    ends = np.arange(len(frames) - 1)
    if step < 3:  # too narrow for blocks of their own
        distances = np.diff(frames)
        ends = np.flatnonzero((distances > 1) & (distances * step > 1.5))
    begins = frames[np.concatenate([[0], ends + 1]).astype(int)]
    for begin, end in zip(begins, frames[np.append(ends, len(frames) - 1)], strict=True):
        x, width = NAMES + 10 + (begin - first) * step, (end + 1 - begin) * step - gap
        yield f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{ROW - 5}"/>'
    yield f'<text class="count" x="{WIDTH - 4}" y="{y + 12}">{count}</text></g>'
