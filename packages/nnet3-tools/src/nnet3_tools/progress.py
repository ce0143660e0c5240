"""Progress of the tools: the bar on a terminal, warnings, and a closing summary."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nnet3_descriptors import Nnet3Error

from nnet3_tools import cli

if TYPE_CHECKING:
    from nnet3 import Model

_LONG = 200
"""The length from which a reason is shortened if it is not the first of its kind."""

UTTERANCES, BYTES = " utterances", "B"
"""The units of a bar."""


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
        cli.say(line)
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


class LackingError(Nnet3Error):
    """An utterance lacks an i-vector, frames or posteriors; Kaldi leaves it out and succeeds."""


class Progress:
    """Counts utterances; shows a bar on a terminal and nothing in a pipe.

    Attributes:
        done: Utterances that succeeded.
        failed: Utterances that did not.
        frames: Frames of the utterances that succeeded.
    """

    def __init__(self, tool: str) -> None:
        self.done = 0
        self.failed = 0
        self.frames = 0
        self._is_broken = False
        self._explained: set[type] = set()
        self._tool = tool
        self._unit = UTTERANCES
        self._bar: Bar | None = None
        self._begin = time.perf_counter()

    def succeed(self, frames: int, size: int = 1) -> None:
        """Counts an utterance of `frames` frames.

        Args:
            frames: Its length.
            size: Progress of the bar, in its unit.
        """
        self.done += 1
        self.frames += frames
        self._go_on(size)

    def fail(self, utterance: str, reason: Nnet3Error | str, size: int = 1) -> None:
        """Counts an utterance that could not be computed, and logs the reason.

        Only the first long reason of each kind appears as a whole: they list rows one by one, and
        often all utterances fail alike.

        Args:
            utterance: Its key.
            reason: The reason why it cannot be computed.
            size: Progress of the bar, in its unit.
        """
        self.failed += 1
        self._is_broken = self._is_broken or not isinstance(reason, LackingError)
        self._go_on(size)
        text = reason if isinstance(reason, str) else cli.one_line(reason)
        if type(reason) in self._explained and len(text) > _LONG:
            text = f"{text[: _LONG // 2]} ... {text[-_LONG // 2 :]}"
        self._explained.add(type(reason))
        self.warn(f"utterance '{utterance}': {text}")

    def break_off(self, error: Nnet3Error) -> None:
        """Counts and logs the damage at which the table of features ends."""
        self.failed += 1
        self._is_broken = True
        self.warn(cli.one_line(error))

    def _go_on(self, size: int) -> None:
        if self._bar is not None:
            count = _count(self.done + self.failed, "utterance")
            self._bar.advance(size, count if self._unit == BYTES else "")

    def warn(self, message: str) -> None:
        """Writes a line to standard error, above the bar."""
        line = f"{self._tool}: {message}"
        if self._bar is None:
            cli.say(line)
        else:
            self._bar.say(line)

    @contextlib.contextmanager
    def reporting(
        self, model: Model, total: int | None = None, unit: str = UTTERANCES
    ) -> Iterator[None]:
        """A context that shows the bar, and writes the summary at its end, even after errors.

        There is no summary if the tool ends before the first utterance, for example because a table
        is missing. As in Kaldi, the time in the summary counts from the start of the tool, with
        loading and compiling.

        Args:
            model: The model, which knows the time spent compiling.
            total: The total for the bar; None if unknown.
            unit: Unit of the total: UTTERANCES, or BYTES of features.
        """
        self._unit, self._bar = unit, Bar(total, unit, with_prefixes=unit == BYTES)
        is_complete = False
        try:
            yield
            is_complete = True
        finally:
            self._bar.close()
            if is_complete or self.done or self.failed:
                self._summarise(time.perf_counter() - self._begin, model.compile_seconds)

    @property
    def status(self) -> int:
        """The exit status, as in Kaldi, which leaves out utterances only if they lack something."""
        if self._is_broken:
            return cli.FATAL
        return 0 if self.done else cli.NOTHING_DONE

    def _summarise(self, seconds: float, compile_seconds: float) -> None:
        rate = self.frames / seconds if seconds > 0 else 0.0
        factor = 100.0 * seconds / self.frames if self.frames else math.inf
        for line in (
            f"Time taken {seconds:.4g}s: real-time factor assuming 100 frames/sec is {factor:.4g}",
            f"Done {self.done} utterances, failed for {self.failed}",
            f"{compile_seconds:.3g} seconds taken in nnet3 compilation total",
        ):
            cli.say(f"LOG ({self._tool}) {line}")
        failed = f", {self.failed} failed" if self.failed else ""
        self.warn(
            f"{_count(self.done, 'utterance')}{failed}, {_count(self.frames, 'frame')} in "
            f"{seconds:.2f} s ({rate:,.0f} frames per second), "
            f"of which compiling {compile_seconds:.2f} s"
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
