"""The bar that shows the progress of a tool on a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from nnet3_tools.kaldi_command import say

_NO_SIZE = {"ncols": 80, "nrows": 24}
"""The size of a terminal that says that it has none, as in some containers; a bar for 0 columns
or rows shows nothing."""


class Bar:
    """A bar on standard error, and lines above it; only the lines where that is no terminal.

    Attributes:
        is_shown: Whether there is a bar.
    """

    def __init__(
        self, total: float | None, unit: str, *, done: float = 0, with_prefixes: bool = False
    ) -> None:
        """Shows the bar.

        Args:
            total: The size of the whole; None if unknown.
            unit: Its unit.
            done: The size that is done already.
            with_prefixes: Whether sizes are shown in thousands, millions and so on.
        """
        self.is_shown = sys.stderr is not None and sys.stderr.isatty()
        self._bar: Any = None
        if self.is_shown:
            from tqdm import tqdm  # takes a while to import

            self._bar = tqdm(
                total=total,
                initial=done,
                unit=unit,
                unit_scale=with_prefixes,
                file=sys.stderr,
                leave=False,
                **({} if _has_size() else _NO_SIZE),
            )

    def advance(self, size: float, note: str = "") -> None:
        """Adds to the size that is done; `note` is shown behind the bar from now on."""
        if self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(size)

    def say(self, line: str) -> None:
        """Writes a line to standard error, above the bar."""
        if self._bar is not None:
            self._bar.clear()
        say(line)
        if self._bar is not None:
            self._bar.refresh()

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _has_size() -> bool:
    """Whether the terminal of standard error says how large it is."""
    with contextlib.suppress(OSError):
        return min(os.get_terminal_size(sys.stderr.fileno())) > 0
    return False
