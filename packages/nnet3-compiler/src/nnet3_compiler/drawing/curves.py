"""Bytes of matrices over the course of programs, as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 240, 70, 36, 16, 110
MOST_POINTS = 400

STYLE = """
.nnet3-memory { display: block; width: 100%; color-scheme: light dark;
  font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
.nnet3-memory text { fill: currentColor; font-size: 13px; }
.nnet3-memory .tick, .nnet3-memory .axis { fill-opacity: .7; font-size: 11px; }
.nnet3-memory .tick { text-anchor: end; }
.nnet3-memory .axis { text-anchor: middle; }
.nnet3-memory .grid { stroke: currentColor; stroke-opacity: .2; }
.nnet3-memory .curve { fill: none; stroke-width: 2; }
.nnet3-memory path.earlier { stroke: currentColor; stroke-opacity: .45; }
.nnet3-memory path.last { stroke: var(--nnet3-accent, #2778c4); }
.nnet3-memory text.earlier { fill-opacity: .6; }
.nnet3-memory text.last { fill: var(--nnet3-accent, #2778c4); }
"""

UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def with_unit(number: float) -> str:
    """Bytes in a unit that people read, powers of 1,000: "1.2 MB"."""
    size, unit = next((each for each in UNITS if number >= each[0]), UNITS[-1])
    return f"{number / size:.3g} {unit}"


def memory_svg(curves: Mapping[str, npt.NDArray[np.int64]]) -> str:
    """Draws curves over the share of commands that are done, from 0 to the largest value.

    Args:
        curves: (commands,) bytes after each command, by name; of several the first is grey.

    Returns:
        An SVG element. It can be a file, or part of an HTML page, whose colour of text it takes; a
        page may set `--nnet3-accent` for the colour of the last curve.
    """
    most = max(float(values.max(initial=1)) for values in curves.values())
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    shapes = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = TOP + inner_height * (1 - share)
        shapes.append(f'<path class="grid" d="M {LEFT} {y:g} H {WIDTH - RIGHT}"/>')
        shapes.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4:g}">{with_unit(share * most)}</text>'
        )
    label_y: list[float] = []
    for number, (name, values) in enumerate(curves.items()):
        kind = "last" if number == len(curves) - 1 else "earlier"
        points = _thinned(values)
        xs = LEFT + inner_width * np.linspace(0, 1, len(points))
        ys = TOP + inner_height * (1 - points / most)
        path = " L ".join(f"{a:.1f} {b:.1f}" for a, b in zip(xs, ys, strict=True))
        shapes.append(f'<path class="curve {kind}" d="M {path}"/>')
        at = TOP + inner_height * (1 - float(values.max(initial=0)) / most) + 4
        while any(abs(at - other) < 16 for other in label_y):
            at += 16
        label_y.append(at)
        shapes.append(
            f'<text class="legend {kind}" x="{WIDTH - RIGHT + 10}" y="{at:g}">{escape(name)}</text>'
        )
    middle = LEFT + inner_width / 2
    shapes.append(
        f'<text class="axis" x="{middle:g}" y="{HEIGHT - 8}">commands, first to last</text>'
    )
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" class="nnet3-memory" role="img" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}">',
            "<title>Bytes of matrices over the course of the program</title>",
            f"<style>{STYLE}</style>",
            *shapes,
            "</svg>",
        ]
    )


def _thinned(values: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """At most so many points, each the largest value of its stretch."""
    if len(values) <= MOST_POINTS:
        return values.astype(np.float64) if len(values) else np.zeros(1)
    starts = np.linspace(0, len(values), MOST_POINTS, endpoint=False).astype(int)
    return np.maximum.reduceat(values, starts).astype(np.float64)
