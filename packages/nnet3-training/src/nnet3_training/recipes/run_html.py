"""The HTML of a run in a notebook: its objectives as curves, its iterations as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

import numpy as np
from nnet3_descriptors.drawing import Axes, curves_svg, html_table

from nnet3_training.recipes.records import Diagnostics, Figure, IterationRecord


def run_html(
    title: str, iterations: Iterable[IterationRecord], diagnostics: Mapping[int, Diagnostics]
) -> str:
    """Returns an element of a page.

    Args:
        title: A line about the run.
        iterations: The iterations done so far.
        diagnostics: By number of network, its objectives; the curves leave out network 0, which is
            not trained.
    """
    names = sorted({name for each in diagnostics.values() for name in each.held_out})
    drawings = "".join(
        f"<div style='max-width: 640px'>{_objectives(name, diagnostics)}</div>" for name in names
    )
    rows = [
        (
            each.number,
            f"{each.learning_rate:.3g}",
            f"{len(each.averaged)} of {len(each.jobs)}" if each.diverged else len(each.jobs),
            f"{each.seconds:.1f}",
            *(_figure(diagnostics.get(each.number), name) for name in names),
        )
        for each in iterations
    ]
    headings = ("iteration", "rate", "jobs", "seconds", *(f"held-out: {name}" for name in names))
    return f"<div><p>{escape(title)}</p>{drawings}{html_table(headings, rows)}</div>"


def _objectives(output: str, diagnostics: Mapping[int, Diagnostics]) -> str:
    found: dict[str, dict[int, Figure | None]] = {
        "train": {number: each.train.get(output) for number, each in diagnostics.items()},
        "held-out": {number: each.held_out.get(output) for number, each in diagnostics.items()},
    }
    curves = {}
    for name, figures in found.items():
        known = {number: each.per_frame for number, each in figures.items() if each and number}
        curves[name] = (np.array([*known], np.float64), np.array([*known.values()], np.float64))
    ends = sorted({float(x) for xs, _ in curves.values() for x in xs})
    ticks = [(x, f"{x:g}") for x in ends[:: max(1, len(ends) // 6)]]
    title = f"Objective of {output}, per frame"
    return curves_svg(curves, Axes(title=title, x_title=f"{title}, by iteration", x_ticks=ticks))


def _figure(diagnostics: Diagnostics | None, output: str) -> str:
    figure = diagnostics.held_out.get(output) if diagnostics else None
    return f"{figure.per_frame:.4g}" if figure else ""
