"""Colours in a terminal, if it has colours and its user wants them."""

from __future__ import annotations

import os
import sys

import click

_STYLES: dict[str, dict[str, object]] = {
    "branch": {"dim": True},
    "input": {"bold": True, "fg": "cyan"},
    "output": {"bold": True, "fg": "cyan"},
    "layer": {"bold": True},
    "parameters": {"fg": "green"},
    "reads": {"fg": "blue"},
    "type": {"dim": True},
}
"""How `click.style` shows the parts of a tree; other parts are plain."""


def is_coloured() -> bool:
    """Whether standard output is a terminal that shows colours.

    A user turns colours off by setting NO_COLOR to anything but "" (https://no-color.org); a
    terminal that calls itself "dumb" has none.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout is not None and sys.stdout.isatty()


def paint(text: str, kind: str) -> str:
    """Gives a part of a tree its colours, see `nnet3_report.format_tree`."""
    style = _STYLES.get(kind)
    return click.style(text, **style) if style else text  # type: ignore[arg-type]
