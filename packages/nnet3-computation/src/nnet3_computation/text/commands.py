"""Numbers, operands and commands in text, both ways; the class of a command declares its text form.

In lists of numbers, arithmetic progressions are written as runs:

    item = NUMBER | FIRST ":" LAST [":" STEP] | NUMBER "x" COUNT

LAST belongs to the run, the default step is 1: `3, 0:9, 0:27:3, 9:0:-1, -1x4`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from nnet3_computation import arrays, commands
from nnet3_computation.commands.declaration import Command, OperandKind
from nnet3_computation.computation import NnetComputation

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


def format_numbers(numbers: arrays.IntArray) -> str:
    """Returns a list of numbers as text."""
    table = numbers.astype(np.int64)[:, None]
    return ", ".join(
        format_progression(int(table[row, 0]), length, int(step[0]))
        for row, length, step in runs(table)
    )


def parse_numbers(text: str) -> arrays.IntArray:
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


ABSENT = "-"
"""A missing operand."""

_RANGE = r"(?::|\d+:\d+)"
SUBMATRIX = rf"m\d+(?:\({_RANGE}, {_RANGE}\))?(?:#\d+)?"
"""A submatrix, as a regular expression."""

PREFIXES: Mapping[OperandKind, str] = {
    OperandKind.PRECOMPUTED: "p",
    OperandKind.INDEXES: "i",
    OperandKind.INDEXES_MULTI: "j",
    OperandKind.INDEXES_RANGES: "r",
    OperandKind.LABEL: "c",
    OperandKind.MEMO: "",
    OperandKind.VALUE: "",
}
_PATTERNS: Mapping[OperandKind, str] = {
    OperandKind.SUBMATRIX: SUBMATRIX,
    OperandKind.WHOLE_MATRIX: SUBMATRIX,
    OperandKind.COMPONENT: r"\S+?",
    OperandKind.NODE: r"\S+?",
    **{kind: rf"{prefix}\d+" for kind, prefix in PREFIXES.items()},
}
_ALPHA = r"[-+.\w]+"
_FIELD = re.compile(r"(?P<before><[^{>]*)?\{(?P<name>\w+)\}(?P<after>[^>{<]*>)?")
"""A field of the TEXT of a command class, with the text that is left out with it."""


Names = Mapping[OperandKind, Mapping[int, str]]
"""The names of submatrices, nodes and components by number."""

Numbers = Mapping[OperandKind, Mapping[str, int]]
"""The inverse: the number of each name."""

_NAMED = {
    OperandKind.SUBMATRIX: "submatrix",
    OperandKind.WHOLE_MATRIX: "submatrix",
    OperandKind.NODE: "node",
    OperandKind.COMPONENT: "component",
}


def submatrix_names(submatrices: arrays.IntArray, matrices: arrays.IntArray) -> dict[int, str]:
    """Returns the text of each submatrix of a computation; "-" for the empty one."""
    names = {0: ABSENT}
    known: set[str] = set()
    sizes = matrices[submatrices[1:, 0]].tolist()
    for number, (row, size) in enumerate(zip(submatrices[1:].tolist(), sizes, strict=True), 1):
        text = submatrix_text(row, size)
        names[number] = f"{text}#{number}" if text in known else text
        known.add(text)
    return names


def submatrix_text(row: list[int], size: list[int]) -> str:
    """Returns the text of a submatrix, given its row in the table and the size of its matrix."""
    matrix, row_offset, num_rows, col_offset, num_cols = row
    rows = _range_text(row_offset, num_rows, size[0])
    cols = _range_text(col_offset, num_cols, size[1])
    return f"m{matrix}" if rows == cols == ":" else f"m{matrix}({rows}, {cols})"


def _range_text(offset: int, count: int, size: int) -> str:
    return ":" if count == size else f"{offset}:{offset + count - 1}"


def command_text(command: Command, names: Names) -> str:
    """Returns a command as text."""
    operands = {item.name: item for item in command.OPERANDS}

    def value(match: re.Match[str]) -> str:
        item, number = operands.get(match["name"]), getattr(command, match["name"])
        if match["before"] and number == (0 if item else 1.0):
            return ""
        if item is None:
            text = alpha_text(number)
        elif item.optional and number == 0:
            text = ABSENT
        elif item.kind in _NAMED:
            text = names[item.kind][number]
        else:
            text = f"{PREFIXES[item.kind]}{number}"
        return _around(match, text)

    return _FIELD.sub(value, command.TEXT)


def read_command(text: str, numbers: Numbers) -> Command:
    """Returns the inverse of `command_text`.

    Raises:
        ValueError: No command is written like this, or an operand is unknown.
    """
    for command_type, pattern in _command_patterns():
        match = pattern.fullmatch(text)
        if match is not None:
            kinds = {item.name: item.kind for item in command_type.OPERANDS}
            values = {
                name: _value(kinds.get(name), written, numbers)
                for name, written in match.groupdict().items()
                if written is not None
            }
            return command_type(**values)
    raise ValueError(f"expected a command, got '{text}'")


def _value(kind: OperandKind | None, text: str, numbers: Numbers) -> float | int:
    if kind is None:
        return float(text)
    if kind in _NAMED:  # a component may be named like what is missing
        return look_up(numbers, kind, text)
    if text == ABSENT:
        return 0
    return int(text.removeprefix(PREFIXES[kind]))


def look_up(numbers: Numbers, kind: OperandKind, text: str) -> int:
    """Returns the number of a name.

    Raises:
        ValueError: It is not declared.
    """
    try:
        return numbers[kind][text]
    except KeyError:
        raise ValueError(f"the {_NAMED[kind]} '{text}' is not declared above") from None


@cache
def _command_patterns() -> tuple[tuple[type[Command], re.Pattern[str]], ...]:
    """Returns the pattern of the text of each command."""
    return tuple((command_type, _pattern(command_type)) for command_type in commands.COMMAND_TYPES)


def _pattern(command_type: type[Command]) -> re.Pattern[str]:
    operands = {item.name: item for item in command_type.OPERANDS}
    pattern, position = "", 0
    for match in _FIELD.finditer(command_type.TEXT):
        item = operands.get(match["name"])
        value = _PATTERNS[item.kind] if item else _ALPHA
        if item and item.optional and not match["before"]:
            value = f"{value}|{ABSENT}"
        written = _around(match, f"(?P<{match['name']}>{value})", re.escape)
        pattern += re.escape(command_type.TEXT[position : match.start()])
        pattern += f"(?:{written})?" if match["before"] else written
        position = match.end()
    return re.compile(pattern + re.escape(command_type.TEXT[position:]))


def _around(
    match: re.Match[str], value: str, change: Callable[[str], str] = lambda text: text
) -> str:
    """Returns the value of a field with the text that belongs to it."""
    if not match["before"]:
        return value + change(match["after"] or "")
    return change(match["before"][1:]) + value + change((match["after"] or ">")[:-1])


def alpha_text(alpha: float) -> str:
    """Returns the shortest text that gives the same float32, whatever the version of NumPy."""
    return repr(float(np.format_float_scientific(np.float32(alpha))))


def describe_submatrix(computation: NnetComputation, submatrix: int) -> str:
    """Returns a submatrix as text, such as "m3(0:9, :)"; "-" for the empty one."""
    if submatrix == 0:
        return "-"
    row = computation.submatrices[submatrix].tolist()
    return submatrix_text(row, computation.matrices[row[0]].tolist())
