"""Curves in an SVG element, such as the bytes of matrices over the course of programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 240, 70, 36, 16, 110
NAMELESS = 24
"""The room on the right if no curve has a name."""
_LARGEST = 1e300
"""Values beyond it are drawn as it is."""
LINE = 16
"""The least distance between names of curves."""

Array = npt.NDArray[np.float64]

KINDS = ("last", "earlier", "third", "fourth")
"""The classes of curves, from the last one back; with more curves they come again."""

COLOURS = """
svg[class^="nnet3-"] { --blue: var(--nnet3-accent, color-mix(in srgb, #2778c4 70%, currentColor));
  --orange: var(--nnet3-recurrent, color-mix(in srgb, #c2571a 70%, currentColor));
  --green: color-mix(in srgb, #2e8b57 70%, currentColor); color-scheme: light dark; }
svg:root[class^="nnet3-"] { background: Canvas; }
"""
"""The colours of drawings. Text has that of the page around, and they are mixed with it: so they
stand out from a dark page, too, whatever makes it dark. A drawing in a file of its own has the
colours that the reader's system prefers, and brings its background."""

STYLE = (
    COLOURS
    + """
.nnet3-curves { display: block; width: 100%;
  font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
.nnet3-curves text { fill: currentColor; font-size: 13px; }
.nnet3-curves .tick, .nnet3-curves .axis { fill-opacity: .7; font-size: 11px; }
.nnet3-curves .tick { text-anchor: end; }
.nnet3-curves .axis, .nnet3-curves .below { text-anchor: middle; }
.nnet3-curves .grid { stroke: currentColor; stroke-opacity: .2; }
.nnet3-curves .curve { fill: none; stroke-width: 2; }
.nnet3-curves path.earlier { stroke: currentColor; stroke-opacity: .55; }
.nnet3-curves path.last { stroke: var(--blue); }
.nnet3-curves path.third { stroke: var(--orange); }
.nnet3-curves path.fourth { stroke: var(--green); }
.nnet3-curves text.earlier { fill-opacity: .7; }
.nnet3-curves text.last { fill: var(--blue); }
.nnet3-curves text.third { fill: var(--orange); }
.nnet3-curves text.fourth { fill: var(--green); }
"""
)


def curves_svg(
    curves: Mapping[str, tuple[Array, Array]],
    *,
    title: str,
    x_title: str,
    x_ticks: Sequence[tuple[float, str]] = (),
    y_text: Callable[[float], str] = "{:.3g}".format,
    y_start: float | None = None,
    y_step: float = 0.0,
) -> str:
    """Draws curves, each with its name at its end.

    Args:
        curves: By name, horizontal and vertical coordinates, (points,) each; points that are not
            finite are left out.
        title: The subject of the drawing, for people who cannot see it.
        x_title: Stands below it.
        x_ticks: Numbers that stand at their places below it, with their text.
        y_text: Makes the text of a number on the left.
        y_start: A number at or below which the axis on the left begins; None for the lowest number
            of the curves.
        y_step: The least distance of the levels on the left, 1 for numbers of things; 0 for any.

    Returns:
        An SVG element. It can be a file, or part of an HTML page, whose colour of text it takes; a
        page may set `--nnet3-accent` for the colour of the last curve.
    """
    finite = {name: _finite(xs, ys) for name, (xs, ys) in curves.items()}
    all_x, all_y = (
        np.concatenate([*(each[which] for each in finite.values()), np.zeros(0)])
        for which in (0, 1)
    )
    y_range = _range(all_y if y_start is None else np.append(all_y, y_start))
    levels = _levels(*y_range, y_step)
    lowest, highest = float(levels[0]), float(levels[-1])
    first, last = _range(all_x)
    right = WIDTH - (RIGHT if any(curves) else NAMELESS)
    inner_width, inner_height = right - LEFT, HEIGHT - TOP - BOTTOM

    def x_of(values: Array) -> Array:
        return LEFT + inner_width * (values - first) / (last - first)

    def y_of(values: Array) -> Array:
        return TOP + inner_height * (highest - values) / (highest - lowest)

    ticks = [(float(x_of(np.array(x))), text) for x, text in x_ticks]
    heights = zip(levels.tolist(), y_of(levels).tolist(), strict=True)
    shapes = list(_grid([(at, y_text(y)) for y, at in heights], ticks, right))
    ends = {name: float(y_of(ys[-1])) for name, (_, ys) in finite.items() if len(ys)}
    names_at = _apart(ends, LINE, TOP, HEIGHT - BOTTOM)
    for number, (name, (xs, ys)) in enumerate(finite.items()):
        kind = KINDS[(len(finite) - 1 - number) % len(KINDS)]
        if not len(xs):
            continue
        points = zip(x_of(xs), y_of(ys), strict=True)
        path = " L ".join(f"{a:.1f} {b:.1f}" for a, b in points)
        shapes.append(f'<path class="curve {kind}" d="M {path}"/>')
        at = names_at[name] + 4
        shapes.append(
            f'<text class="legend {kind}" x="{right + 10}" y="{at:g}">{escape(name)}</text>'
        )
    middle = LEFT + inner_width / 2
    shapes.append(f'<text class="axis" x="{middle:g}" y="{HEIGHT - 6}">{escape(x_title)}</text>')
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" class="nnet3-curves" role="img" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}">'
    )
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", *shapes, "</svg>"]
    )


def _grid(
    levels: Sequence[tuple[float, str]], ticks: Sequence[tuple[float, str]], right: int
) -> Iterator[str]:
    """Lines at the heights of levels, with their text, and the text of ticks at their places."""
    for at, text in levels:
        yield f'<path class="grid" d="M {LEFT} {at:g} H {right}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{at + 4:g}">{escape(text)}</text>'
    for at, text in ticks:
        y = HEIGHT - BOTTOM + 14
        yield f'<text class="axis below" x="{at:g}" y="{y}">{escape(text)}</text>'


def _finite(xs: Array, ys: Array) -> tuple[Array, Array]:
    is_finite = np.isfinite(xs) & np.isfinite(ys)
    return xs[is_finite], ys[is_finite].clip(-_LARGEST, _LARGEST)


def _range(values: Array) -> tuple[float, float]:
    """The smallest and the largest of them, with room between if they are nearly the same."""
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    room = max(0.5, abs(low) / 2)
    return (low, high) if high - low > 1e-9 * room else (low - room, high + room)


def _levels(low: float, high: float, least: float) -> Array:
    """Round numbers, evenly apart, that enclose a range, or miss its ends by a little of a step."""
    rough = max((high - low) / 4, least)
    power = float(10.0 ** np.floor(np.log10(rough)))
    step = power * next(each for each in (1, 2, 2.5, 5, 10) if each * power >= rough * (1 - 1e-9))
    first, last = np.floor(low / step + 0.02), np.ceil(high / step - 0.02)
    levels: Array = np.arange(first, last + 1) * step
    return levels


def _apart(
    places: Mapping[str, float], distance: float, top: float, bottom: float
) -> dict[str, float]:
    """The places, moved as little as it takes to lie apart, between the top and the bottom.

    They move up, and down only from above the top. Names that have no room stand below the bottom.
    """
    moved: dict[str, float] = {}
    lowest = bottom
    for name in sorted(places, key=lambda name: -places[name]):
        moved[name] = min(places[name], lowest)
        lowest = moved[name] - distance
    highest = top
    for name in reversed(moved):
        moved[name] = max(moved[name], highest)
        highest = moved[name] + distance
    return moved


MOST_POINTS = 400

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
    points = {name: _thinned(values) for name, values in curves.items()}
    return curves_svg(
        {name: (np.linspace(0, 1, len(values)), values) for name, values in points.items()},
        title="Bytes of matrices over the course of the program",
        x_title="commands, first to last",
        y_text=with_unit,
        y_start=0.0,
    )


def _thinned(values: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """At most MOST_POINTS points, each the largest value of its stretch."""
    if len(values) <= MOST_POINTS:
        return values.astype(np.float64) if len(values) else np.zeros(1)
    starts = np.linspace(0, len(values), MOST_POINTS, endpoint=False).astype(int)
    return np.maximum.reduceat(values, starts).astype(np.float64)
