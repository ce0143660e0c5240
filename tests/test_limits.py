"""Excessive requests are refused before they allocate memory; large ones work.

The system ends processes that exceed a limit on memory or time. These limits leave room for a slow
machine with other work; `benchmarks/limits.py` measures the times.
"""

import sys
from pathlib import Path

import pytest
from catalogues import parts_of

pytest.importorskip("resource")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from limits import DONE, REFUSED, measured

SECONDS = 10
"""Seconds of processor time. Refusals take less than two, and large requests less than three."""

MESSAGES = parts_of("limits.txt")
"""How the messages of excessive requests begin, by name."""


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_within_bounds(name: str) -> None:
    """A process with ten seconds and 300 MB refuses an excessive request with a message."""
    _, _, what = measured(REFUSED[name], memory=300, cpu=SECONDS)

    assert MESSAGES[name] in what


@pytest.mark.parametrize("name", DONE)
def test_is_done_within_bounds(name: str) -> None:
    """A process with fifteen seconds and 600 MB computes a large request within the limits."""
    _, _, what = measured(DONE[name], memory=600, cpu=15)

    assert what == "done"
