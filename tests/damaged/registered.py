"""The formats of damaged files: `FORMATS` has a function for each.

It makes a damaged file, reads it, and uses what it has read as a user would; it returns whether the
file could be read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from damaged.using import User

Try = Callable[[User, int, int, Path], bool]
"""Takes the user, a seed and a number, and an empty folder; returns whether reading succeeded."""

FORMATS: dict[str, tuple[int, Try]] = {}
"""For each format how often it is drawn, and its function."""


def damaged_format(name: str, share: int) -> Callable[[Try], Try]:
    """Registers the function of a format."""

    def register(function: Try) -> Try:
        FORMATS[name] = share, function
        return function

    return register
