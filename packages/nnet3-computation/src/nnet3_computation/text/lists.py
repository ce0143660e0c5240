"""Lists of numbers in text: arithmetic progressions are written as runs.

    item = NUMBER | FIRST ":" LAST [":" STEP] | NUMBER "x" COUNT

LAST belongs to the run, the default step is 1: `3, 0:9, 0:27:3, 9:0:-1, -1x4`.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from nnet3_computation.arrays import IntArray

NUMBER = r"-?\d+"
ITEM = rf"{NUMBER}(?::{NUMBER}(?::{NUMBER})?|x\d+)?"
"""One item of a list, as a regular expression."""

LONGEST_RUN = 1 << 24
"""A longer run counts as a slip of the pen, and is refused before it takes memory."""

_ITEM = re.compile(rf"({NUMBER})(?::({NUMBER})(?::({NUMBER}))?|x(\d+))?")


def runs(table: NDArray[np.int64]) -> list[tuple[int, int, NDArray[np.int64]]]:
    """Splits rows into runs with constant differences.

    Args:
        table: (rows, columns).

    Returns:
        For each run its first row, its length and (columns,) the difference of its rows. Runs of
        two rows are split: they save nothing.
    """
    if not len(table):
        return []
    steps = np.diff(table, axis=0)
    changes = np.flatnonzero((steps[1:] != steps[:-1]).any(axis=1)) + 1
    found = []
    row = 0
    bounds = [*changes.tolist(), len(steps)]
    position = 0
    while row < len(table):
        while position < len(bounds) and bounds[position] <= row:
            position += 1
        last = bounds[position] if position < len(bounds) else row
        length = last - row + 1
        if length < 3:
            length = 1
        found.append((row, length, steps[row] if length > 1 else np.zeros(table.shape[1], int)))
        row += length
    return found


def format_progression(first: int, length: int, step: int) -> str:
    """Returns the item of a run."""
    if length == 1:
        return str(first)
    if step == 0:
        return f"{first}x{length}"
    last = first + (length - 1) * step
    return f"{first}:{last}" if step == 1 else f"{first}:{last}:{step}"


def parse_number(text: str) -> int:
    """Returns a number.

    Raises:
        ValueError: It does not fit in 32 bits.
    """
    number = int(text)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"the number {text} does not fit in 32 bits")
    return number


def parse_length(text: str) -> int:
    """Returns the length of a run.

    Raises:
        ValueError: It is longer than any run should be.
    """
    return _checked_length(int(text))


def _checked_length(length: int) -> int:
    if length > LONGEST_RUN:
        raise ValueError(f"a run of {length} items is longer than {LONGEST_RUN}")
    return length


def parse_progression(text: str) -> tuple[int, int, int]:
    """Returns the first number, the length and the step of an item.

    Raises:
        ValueError: It is not an item, a number does not fit in 32 bits, or the run is too long or
            does not end at its last number.
    """
    match = _ITEM.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a number or a run of numbers, got '{text}'")
    first = parse_number(match[1])
    if match[4] is not None:
        return first, parse_length(match[4]), 0
    if match[2] is None:
        return first, 1, 0
    last, step = parse_number(match[2]), int(match[3] or 1)
    if step == 0 or (last - first) % step or (last - first) // step < 0:
        raise ValueError(f"the run '{text}' does not end at its last number")
    return first, _checked_length((last - first) // step + 1), step


def format_numbers(numbers: IntArray) -> str:
    """Returns a list of numbers as text."""
    table = numbers.astype(np.int64)[:, None]
    return ", ".join(
        format_progression(int(table[row, 0]), length, int(step[0]))
        for row, length, step in runs(table)
    )


def parse_numbers(text: str) -> IntArray:
    """Returns the inverse of `format_numbers`: (numbers,) int32.

    Raises:
        ValueError: The text is not a list of numbers.
    """
    if not text.strip():
        return np.zeros(0, np.int32)
    parts = [
        first + step * np.arange(length)
        for first, length, step in map(parse_progression, re.split(r"\s*,\s*", text.strip()))
    ]
    return np.concatenate(parts).astype(np.int32)
