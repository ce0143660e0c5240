"""Bytes of matrices over the course of programs, as SVG."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from nnet3_report.curves import Axes, curves_svg

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
        Axes(
            title="Bytes of matrices over the course of the program",
            x_title="commands, first to last",
            y_text=with_unit,
            y_start=0.0,
        ),
    )


def _thinned(values: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """At most MOST_POINTS points, each the largest value of its stretch."""
    if len(values) <= MOST_POINTS:
        return values.astype(np.float64) if len(values) else np.zeros(1)
    starts = np.linspace(0, len(values), MOST_POINTS, endpoint=False).astype(int)
    return np.maximum.reduceat(values, starts).astype(np.float64)
