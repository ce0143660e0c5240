"""Operands and commands in text, both ways; the class of a command declares its text form."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

import attrs
import numpy as np

from nnet3_computation.arrays import IntArray
from nnet3_computation.commands import COMMAND_TYPES
from nnet3_computation.commands.declaration import Command, OperandKind

ABSENT = "-"
"""A missing operand."""

_RANGE = r"(?::|\d+:\d+)"
SUBMATRIX = rf"m\d+(?:\({_RANGE}, {_RANGE}\))?(?:#\d+)?"
"""A submatrix, as a regular expression."""

_PATTERNS: Mapping[OperandKind, str] = {
    OperandKind.SUBMATRIX: SUBMATRIX,
    OperandKind.WHOLE_MATRIX: SUBMATRIX,
    OperandKind.COMPONENT: r"\S+?",
    OperandKind.NODE: r"\S+?",
    OperandKind.PRECOMPUTED: r"p\d+",
    OperandKind.MEMO: r"\d+",
    OperandKind.INDEXES: r"i\d+",
    OperandKind.INDEXES_MULTI: r"j\d+",
    OperandKind.INDEXES_RANGES: r"r\d+",
    OperandKind.LABEL: r"c\d+",
    OperandKind.VALUE: r"\d+",
}
PREFIXES: Mapping[OperandKind, str] = {
    OperandKind.PRECOMPUTED: "p",
    OperandKind.INDEXES: "i",
    OperandKind.INDEXES_MULTI: "j",
    OperandKind.INDEXES_RANGES: "r",
    OperandKind.LABEL: "c",
    OperandKind.MEMO: "",
    OperandKind.VALUE: "",
}
_ALPHA = r"[-+.\w]+"
_FIELD = re.compile(r"(?P<before><[^{>]*)?\{(?P<name>\w+)\}(?P<after>[^>{<]*>)?")
"""A field of the TEXT of a command class, with the text that is left out with it."""


@attrs.frozen(kw_only=True, eq=False)
class SubmatrixNames:
    """The text of every submatrix, and the submatrix of every text.

    Attributes:
        texts: The text of each submatrix; "-" for the empty one.
        numbers: The submatrix of each text.
    """

    texts: tuple[str, ...]
    numbers: Mapping[str, int]

    @classmethod
    def of(cls, submatrices: IntArray, matrices: IntArray) -> SubmatrixNames:
        """Returns the texts of the submatrices of a computation."""
        numbers: dict[str, int] = {}
        texts = [ABSENT]
        sizes = matrices[submatrices[1:, 0]].tolist()
        for number, (row, size) in enumerate(zip(submatrices[1:].tolist(), sizes, strict=True), 1):
            text = submatrix_text(row, size)
            if numbers.setdefault(text, number) != number:
                text = f"{text}#{number}"
                numbers[text] = number
            texts.append(text)
        return cls(texts=tuple(texts), numbers=numbers)


def submatrix_text(row: list[int], size: list[int]) -> str:
    """Returns the text of a submatrix, given its row in the table and the size of its matrix."""
    matrix, row_offset, num_rows, col_offset, num_cols = row
    rows = _range_text(row_offset, num_rows, size[0])
    cols = _range_text(col_offset, num_cols, size[1])
    return f"m{matrix}" if rows == cols == ":" else f"m{matrix}({rows}, {cols})"


def _range_text(offset: int, count: int, size: int) -> str:
    return ":" if count == size else f"{offset}:{offset + count - 1}"


@attrs.frozen(kw_only=True, eq=False)
class OperandText:
    """How operands are written in the text of one computation.

    Attributes:
        submatrices: The texts of submatrices.
        nodes: The names of nodes by number.
        components: The names of components by number.
    """

    submatrices: SubmatrixNames
    nodes: Mapping[int, str]
    components: Mapping[int, str]

    def command(self, command: Command) -> str:
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
            else:
                text = self._operand(item.kind, number)
            return _around(match, text)

        return _FIELD.sub(value, command.TEXT)

    def _operand(self, kind: OperandKind, number: int) -> str:
        match kind:
            case OperandKind.SUBMATRIX | OperandKind.WHOLE_MATRIX:
                return self.submatrices.texts[number]
            case OperandKind.NODE:
                return self.nodes[number]
            case OperandKind.COMPONENT:
                return self.components[number]
            case _:
                return f"{PREFIXES[kind]}{number}"


@attrs.frozen(kw_only=True, eq=False)
class OperandReader:
    """The inverse of `OperandText`.

    Attributes:
        submatrices: The texts of submatrices.
        nodes: The numbers of nodes by name.
        components: The numbers of components by name.
    """

    submatrices: SubmatrixNames
    nodes: Mapping[str, int]
    components: Mapping[str, int]

    def command(self, text: str) -> Command:
        """Returns the command of a text.

        Raises:
            ValueError: No command is written like this, or an operand is unknown.
        """
        for command_type, pattern in _command_patterns():
            match = pattern.fullmatch(text)
            if match is not None:
                kinds = {item.name: item.kind for item in command_type.OPERANDS}
                values = {
                    name: self._value(kinds.get(name), written)
                    for name, written in match.groupdict().items()
                    if written is not None
                }
                return command_type(**values)
        raise ValueError(f"expected a command, got '{text}'")

    def _value(self, kind: OperandKind | None, text: str) -> float | int:
        if kind is None:
            return float(text)
        if text == ABSENT:
            return 0
        match kind:
            case OperandKind.SUBMATRIX | OperandKind.WHOLE_MATRIX:
                return self.submatrix(text)
            case OperandKind.NODE:
                return _look_up(self.nodes, text, "node")
            case OperandKind.COMPONENT:
                return _look_up(self.components, text, "component")
            case _:
                return int(text.removeprefix(PREFIXES[kind]))

    def submatrix(self, text: str) -> int:
        """Returns the number of a submatrix.

        Raises:
            ValueError: It is not in the list of submatrices.
        """
        return _look_up(self.submatrices.numbers, text, "submatrix")


def _look_up(numbers: Mapping[str, int], text: str, what: str) -> int:
    try:
        return numbers[text]
    except KeyError:
        raise ValueError(f"the {what} '{text}' is not declared above") from None


@cache
def _command_patterns() -> tuple[tuple[type[Command], re.Pattern[str]], ...]:
    """Returns the pattern of the text of each command."""
    return tuple((command_type, _pattern(command_type)) for command_type in COMMAND_TYPES)


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
    """Returns the shortest text that gives the same float32."""
    return str(np.float32(alpha))
