"""Progress of the tools: a bar, warnings, and a closing summary."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nnet3_descriptors import Nnet3Error

from nnet3_tools.bar import Bar
from nnet3_tools.kaldi_command import FATAL, NOTHING_DONE, log, one_line, say

if TYPE_CHECKING:
    from nnet3 import Model

_LONG = 200
"""The length from which a reason is shortened if it is not the first of its kind."""

UTTERANCES, BYTES = " utterances", "B"
"""The units of a bar."""


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
        text = reason if isinstance(reason, str) else one_line(reason)
        if type(reason) in self._explained and len(text) > _LONG:
            text = f"{text[: _LONG // 2]} ... {text[-_LONG // 2 :]}"
        self._explained.add(type(reason))
        self.warn(f"utterance '{utterance}': {text}")

    def break_off(self, error: Nnet3Error) -> None:
        """Counts and logs the damage at which the table of features ends."""
        self.failed += 1
        self._is_broken = True
        self.warn(one_line(error))

    def _go_on(self, size: int) -> None:
        if self._bar is not None:
            count = _count(self.done + self.failed, "utterance")
            self._bar.advance(size, count if self._unit == BYTES else "")

    def warn(self, message: str) -> None:
        """Writes a line to standard error, above the bar."""
        line = f"{self._tool}: {message}"
        if self._bar is None:
            say(line)
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
            return FATAL
        return 0 if self.done else NOTHING_DONE

    def _summarise(self, seconds: float, compile_seconds: float) -> None:
        rate = self.frames / seconds if seconds > 0 else 0.0
        factor = 100.0 * seconds / self.frames if self.frames else math.inf
        log(
            self._tool,
            f"Time taken {seconds:.4g}s: real-time factor assuming 100 frames/sec is {factor:.4g}",
        )
        log(self._tool, f"Done {self.done} utterances, failed for {self.failed}")
        log(self._tool, f"{compile_seconds:.3g} seconds taken in nnet3 compilation total")
        failed = f", {self.failed} failed" if self.failed else ""
        self.warn(
            f"{_count(self.done, 'utterance')}{failed}, {_count(self.frames, 'frame')} in "
            f"{seconds:.2f} s ({rate:,.0f} frames per second), "
            f"of which compiling {compile_seconds:.2f} s"
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
