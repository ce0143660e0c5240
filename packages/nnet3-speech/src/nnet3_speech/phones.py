"""Phones: their names in symbol tables such as `phones.txt`; the most probable, frame by frame."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import read_file

from nnet3_speech.errors import SpeechError
from nnet3_speech.values import expect_positive, numbers

_NUMBER = re.compile(rb"[0-9]{1,18}")


def read_symbols(path: str | os.PathLike[str]) -> dict[int, str]:
    """Reads a symbol table in text: a name and its number on each line.

    Args:
        path: A file such as phones.txt or words.txt, in UTF-8.

    Returns:
        The name of each number, in the order of the file. Number 0 is usually `<eps>`, no symbol.

    Raises:
        FileError: the file cannot be read.
        SpeechError: a line is no name and number, or two names have one number.
    """
    names: dict[int, str] = {}
    for number, line in enumerate(read_file(path).splitlines(), 1):
        parts = line.split()  # at ASCII blanks: a word may have others
        if not parts:
            continue
        where = f"{os.fspath(path)}, line {number}"
        if len(parts) != 2 or not _NUMBER.fullmatch(parts[1]):
            shown = line[:60].decode(errors="replace")
            raise SpeechError(f"{where}: expected a name and a number, found {shown!r}")
        try:
            name = parts[0].decode()
        except UnicodeDecodeError as error:
            raise SpeechError(f"{where}: the name is not in UTF-8: {error.reason}") from error
        symbol = int(parts[1])
        if names.setdefault(symbol, name) != name:
            raise SpeechError(
                f"{where}: '{name}' has number {symbol}, which is '{names[symbol]}' already"
            )
    return names


_POSITIONS = ("_B", "_E", "_I", "_S")
_ROUNDING = 1e-3
"""By so much a sum of probabilities in single precision may be above 1."""


@attrs.frozen
class Phone:
    """A phone in a recording.

    Attributes:
        name: The phone.
        start: Its first moment, in seconds.
        end: The moment after it, in seconds.
        probability: The mean of its posterior over its frames.
    """

    name: str
    start: float
    end: float
    probability: float


def without_positions(
    posteriors: npt.ArrayLike, names: Sequence[str]
) -> tuple[npt.NDArray[np.float32], tuple[str, ...]]:
    """Posteriors of phones without their place in a word: those of "a_B", "a_I", ... are added up.

    Args:
        posteriors: (frames, phones).
        names: The name of each column.

    Returns:
        (frames, fewer phones) float32, and the names of its columns, in the order of their first.

    Raises:
        SpeechError: the number of names is not that of columns, or a value is not finite.
    """
    values = _columns(posteriors, names)
    bare = [name[:-2] if name[-2:] in _POSITIONS and len(name) > 2 else name for name in names]
    columns = {name: number for number, name in enumerate(dict.fromkeys(bare))}
    sums = np.zeros((len(values), len(columns)), np.float32)
    for column, name in enumerate(bare):
        sums[:, columns[name]] += values[:, column]
    return sums, tuple(columns)


def best_phones(
    posteriors: npt.ArrayLike, names: Sequence[str], frame_seconds: float
) -> list[Phone]:
    """The most probable phone of each frame, equal neighbours joined.

    It needs neither a graph nor a decoder, and knows no language: single frames may be wrong.

    Args:
        posteriors: (frames, phones), such as `Model.phone_posteriors` gives.
        names: The name of each column.
        frame_seconds: Seconds from one row to the next.

    Raises:
        SpeechError: the number of names is not that of columns, a value is no probability, or
            `frame_seconds` is no number above 0.
    """
    values = _columns(posteriors, names)
    expect_positive(frame_seconds, "frame_seconds")
    if not values.size:
        return []
    for found in (values.min(), values.max()):
        if not 0.0 <= found <= 1.0 + _ROUNDING:
            raise SpeechError(f"posteriors: expected probabilities, 0 to 1, found {found:g}")
    best = values.argmax(axis=1)
    starts = np.flatnonzero(np.diff(best, prepend=-1))
    ends = np.append(starts[1:], len(best))
    return [
        Phone(
            names[best[start]],
            float(start * frame_seconds),
            float(end * frame_seconds),
            float(values[start:end, best[start]].mean()),
        )
        for start, end in zip(starts, ends, strict=True)
    ]


def _columns(posteriors: npt.ArrayLike, names: Sequence[str]) -> npt.NDArray[np.float32]:
    what = f"posteriors of {len(names)} phones"
    return numbers(posteriors, what, ("frames", len(names)), dtype=np.float32)
