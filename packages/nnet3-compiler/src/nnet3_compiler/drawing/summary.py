"""The summary of a computation that a notebook shows."""

from __future__ import annotations

from collections import Counter
from html import escape

from nnet3_descriptors.drawing import html_table

from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.drawing.curves import memory_svg, with_unit
from nnet3_compiler.memory import live_bytes
from nnet3_compiler.text import program_lines

MOST_LINES = 1000
"""The most lines of the program to show."""


def computation_html(computation: NnetComputation) -> str:
    """Returns a computation as an element of a page, without names of nodes and components.

    It shows the requests, if they are known, and the memory of matrices over the course of the
    program; behind a click, the commands by kind and the program as `str` lists it.
    """
    bytes_held = live_bytes(computation)
    kinds = Counter(type(command).__name__ for command in computation.commands).most_common()
    asked = [
        (what, io.name, io.rows, "yes" if io.has_deriv else "")
        for request in computation.requests
        for what, ios in (("given", request.inputs), ("wanted", request.outputs))
        for io in ios
    ]
    most = with_unit(float(bytes_held.max(initial=0)))
    plan = computation.memory_plan
    arena = "" if plan is None else f", planned in {with_unit(plan.arena_bytes)}"
    lines = program_lines(computation)
    shown = lines[:MOST_LINES]
    if len(lines) > len(shown):
        shown.append(f"... {len(lines) - len(shown):,} more")
    return (
        f"<div><p>{len(computation.command_table):,} commands, "
        f"{len(computation.matrices) - 1:,} matrices of at most {most} at a time{arena}</p>"
        + (html_table(("", "node", "rows", "derivative"), asked) if asked else "")
        + f"<div style='max-width: 640px'>{memory_svg({'matrices': bytes_held})}</div>"
        + _folded("kinds of commands", html_table(("", "count"), kinds))
        + _folded("the program", "<pre>" + escape("\n".join(shown)) + "</pre>")
        + "</div>"
    )


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>{content}</details>"
