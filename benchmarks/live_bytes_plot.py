"""Draws the number of live bytes over the commands of programs, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

import attrs
import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT = 440, 270
"""The size of a panel."""

LEFT, RIGHT, TOP, BOTTOM = 52, 22, 52, 40
"""Its margins."""

COLORS = ("#7b8591", "#1f6fb4")
KALDI_COLOR = "#b5482a"
GRID = "#e6e8eb"
INK = "#30363d"
MOST_POINTS = 300
LEAST = 3.0
"""Megabytes at the lower end of the axis."""


@attrs.frozen(eq=False)
class Curve:
    """The live bytes of one program.

    Attributes:
        label: Name of the program.
        megabytes: Megabytes after each command, (commands,).
        forward_end: The end of the forward part, as a share of the commands.
    """

    label: str
    megabytes: npt.NDArray[np.float64]
    forward_end: float


@attrs.frozen
class Panel:
    """The curves of one network, with Kaldi's peak in megabytes."""

    title: str
    curves: tuple[Curve, ...]
    kaldi: float


def drawing(panels: Sequence[Panel]) -> str:
    """Returns the panels, two in a row, as an SVG document."""
    rows = -(-len(panels) // 2)
    size = f'width="{2 * WIDTH}" height="{rows * HEIGHT}" viewBox="0 0 {2 * WIDTH} {rows * HEIGHT}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} '
        f'font-family="Helvetica, Arial, sans-serif" font-size="11" fill="{INK}">',
        "<title>Bytes of matrices over the course of training programs</title>",
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, 2)
        lines.append(f'<g transform="translate({column * WIDTH} {row * HEIGHT})">')
        lines += _panel(panel)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _panel(panel: Panel) -> Iterator[str]:
    highest = max(panel.kaldi, *(float(curve.megabytes.max()) for curve in panel.curves))
    scale = _Scale(math.log10(LEAST), math.log10(1.15 * highest))
    yield f'<text x="{LEFT}" y="18" font-size="13" font-weight="bold">{escape(panel.title)}</text>'
    for tick in _ticks(LEAST, 1.15 * highest):
        at = scale.y(tick)
        yield f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>'
        yield _text(LEFT - 6, at + 4, f"{tick:g}", "end")
    yield _text(LEFT - 6, 36, "MB", "end")
    yield _text(
        (LEFT + WIDTH - RIGHT) / 2,
        HEIGHT - 8,
        "share of the program's commands (mark: the backward part begins)",
        "middle",
    )
    for share in (0, 0.25, 0.5, 0.75, 1):
        yield _text(_x(share), HEIGHT - BOTTOM + 15, f"{share:.0%}", "middle")
    for color, curve in zip(COLORS, panel.curves, strict=True):
        yield from _curve(curve, color, scale)
    yield (
        f'<path d="M{LEFT} {scale.y(panel.kaldi):.1f}H{WIDTH - RIGHT}" stroke="{KALDI_COLOR}" '
        'stroke-width="1.4" stroke-dasharray="5 4"/>'
    )
    yield from _legend(panel)


def _curve(curve: Curve, color: str, scale: _Scale) -> Iterator[str]:
    """A line through the maxima of short stretches, and a mark at the end of the forward part."""
    points = []
    for stretch in np.array_split(np.arange(len(curve.megabytes)), MOST_POINTS):
        if len(stretch):
            share = (stretch[0] + stretch[-1] + 1) / 2 / len(curve.megabytes)
            highest = max(float(curve.megabytes[stretch].max()), LEAST)
            points.append(f"{_x(share):.1f},{scale.y(highest):.1f}")
    yield f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="1.8"/>'
    begin, end = scale.y(LEAST), scale.y(LEAST) - 7
    yield (
        f'<path d="M{_x(curve.forward_end):.1f} {begin:.1f}V{end:.1f}" stroke="{color}" '
        f'stroke-width="2"><title>{escape(curve.label)}: the backward part begins</title></path>'
    )


def _legend(panel: Panel) -> Iterator[str]:
    """Names the curves with their peaks, below the title."""
    entries = [
        (color, f"{curve.label}, peak {curve.megabytes.max():.0f}")
        for color, curve in zip(COLORS, panel.curves, strict=True)
    ]
    at = float(LEFT)
    for color, text in [*entries, (KALDI_COLOR, f"Kaldi's peak {panel.kaldi:.0f}")]:
        yield _text(at, 36, text, "start", color)
        at += 6.2 * len(text) + 14


def _x(share: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * share


def _text(x: float, y: float, text: str, anchor: str, color: str = INK) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}"'
    return f"<text {place}>{escape(text)}</text>"


@attrs.frozen
class _Scale:
    """A logarithmic axis between two powers of ten."""

    lowest: float
    highest: float

    def y(self, megabytes: float) -> float:
        share = (math.log10(megabytes) - self.lowest) / (self.highest - self.lowest)
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)


def _ticks(least: float, most: float) -> list[float]:
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [float(factor * 10**power) for power in powers for factor in (1, 3)]
    return [tick for tick in ticks if least <= tick <= most]
