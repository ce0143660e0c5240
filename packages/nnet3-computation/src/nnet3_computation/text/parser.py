"""Parsing the text of a computation; the format is described in `nnet3_computation.text`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

import numpy as np
from nnet3_descriptors import Nnet, serialization
from nnet3_descriptors.components import PrecomputedIndexes
from nnet3_descriptors.indexes import NO_TIME
from nnet3_descriptors.structure import DIGEST_BYTES, NetworkFingerprint

from nnet3_computation import arrays, errors
from nnet3_computation.commands import OperandKind, command_table, declaration
from nnet3_computation.computation import MemoryPlan, NnetComputation, parts
from nnet3_computation.request import RequestFingerprint
from nnet3_computation.text.commands import (
    ITEM,
    SUBMATRIX,
    Numbers,
    look_up,
    parse_length,
    parse_number,
    parse_numbers,
    parse_progression,
    read_command,
    submatrix_names,
)

_COMMENT = re.compile(r"(?:^|\s)//")
FIRST_LINE = "nnet3 computation 2"
OLDER_FIRST_LINES = ("nnet3 computation 1",)


def parse_computation(text: str, nnet: Nnet | None = None) -> NnetComputation:
    """Reads a computation from the text that `format_computation` writes.

    Args:
        text: The text.
        nnet: The network; if given, its nodes and components must have the numbers of the text.

    Raises:
        ComputationSyntaxError: A line can't be understood; the message shows it.
        ComputationError: The parts contradict each other.
    """
    errors.ComputationSyntaxError.check_text(text)
    reader = _Reader()
    position = 0
    for line in text.splitlines(keepends=True):
        content = _COMMENT.split(line, maxsplit=1)[0].strip()
        if content:
            begin = position + line.index(content)
            try:
                reader.read_line(content)
            except ValueError as error:
                raise errors.ComputationSyntaxError(
                    str(error), text, (begin, begin + len(content))
                ) from error
        position += len(line)
    if not reader.begun:
        raise errors.ComputationSyntaxError(f"expected '{FIRST_LINE}'", text, (0, len(text)))
    if nnet is not None:
        _check_names(reader, nnet, text)
    return reader.computation()


def _check_names(reader: _Reader, nnet: Nnet, text: str) -> None:
    """Refuses a network whose nodes or components have other numbers."""
    of_network = (
        ("node", reader.nodes, [node.name for node in nnet.nodes]),
        ("component", reader.components, list(nnet.component_names)),
    )
    for what, numbers, names in of_network:
        for name, number in numbers.items():
            if number >= len(names) or names[number] != name:
                line = f"{what} {name} = {number}"
                begin = text.find(line)
                found = f"is '{names[number]}'" if number < len(names) else "does not exist"
                raise errors.ComputationSyntaxError(
                    f"{what} {number} of the network {found}, not '{name}'",
                    text,
                    (begin, begin + len(line)),
                )


_LINES = re.compile(
    r"(?P<first>nnet3 computation .*)"
    r"|(?P<flag>need_model_derivative|debug_info) = (?P<flag_value>true|false)"
    r"|(?P<name_kind>node|component) (?P<name>\S+) = (?P<name_number>\d+)"
    r"|m(?P<matrix>\d+) = (?P<rows>\d+) x (?P<cols>\d+)(?:, (?P<debug>.*))?"
    r"|submatrices: (?P<submatrices>.*)"
    r"|(?P<list_kind>[ijr])(?P<list_number>\d+) = ?(?P<list>.*)"
    r"|p(?P<precomputed>\d+) = (?P<json>.*)"
    r"|steps: (?P<steps>.*)"
    r"|c(?P<position>\d+): (?P<command>.*)"
    r"|fingerprint of (?P<digests_of>nodes|components): (?P<digests>.*)"
    r"|request: (?P<request>.*)"
    r"|memory plan: (?P<memory_plan>.*)"
)


class _Reader:
    """The content of the lines so far."""

    def __init__(self) -> None:
        self.begun = False
        self.flags: dict[str, bool] = {}
        self.nodes: dict[str, int] = {}
        self.components: dict[str, int] = {}
        self.matrices = [(0, 0)]
        self.infos = [parts.NO_DEBUG_INFO]
        self.submatrices = [[0] * 5]
        self.lists: dict[str, list[arrays.IntArray]] = {"i": [], "j": [], "r": []}
        self.precomputed: list[PrecomputedIndexes | None] = [None]
        self.steps: list[tuple[int, int]] = []
        self.commands: list[declaration.Command] = []
        self.digests: dict[str, bytearray] = {}
        self.requests: list[RequestFingerprint] = []
        self.memory_plan: MemoryPlan | None = None

    def computation(self) -> NnetComputation:
        """Returns the computation."""
        return NnetComputation(
            matrices=self.matrices,
            submatrices=self.submatrices,
            command_table=command_table(self.commands),
            indexes=self.lists["i"],
            indexes_multi=self.lists["j"],
            indexes_ranges=self.lists["r"],
            precomputed_indexes=self.precomputed,
            need_model_derivative=self.flags.get("need_model_derivative", False),
            matrix_debug_info=self.infos if self.flags.get("debug_info") else (),
            steps=self.steps,
            network=self._network(),
            requests=self.requests,
            memory_plan=self.memory_plan,
        )

    def read_line(self, line: str) -> None:
        """Takes in a line.

        Raises:
            ValueError: It can't be understood.
        """
        match = _LINES.fullmatch(line)
        if match is None:
            raise ValueError("expected a line of a computation")
        found = {name: text for name, text in match.groupdict().items() if text is not None}
        if not self.begun:
            if line not in (FIRST_LINE, *OLDER_FIRST_LINES):
                raise ValueError(f"expected '{FIRST_LINE}'")
            self.begun = True
        elif "flag" in found:
            self.flags[found["flag"]] = found["flag_value"] == "true"
        elif "name" in found:
            kind, name = found["name_kind"], found["name"]
            numbers = self.nodes if kind == "node" else self.components
            number = parse_number(found["name_number"])
            if name in numbers or number in numbers.values():
                raise ValueError(f"the {kind} '{name}', or one with that number, is declared above")
            numbers[name] = number
        elif "matrix" in found:
            _expect_number("m", int(found["matrix"]), len(self.matrices))
            rows, cols = parse_number(found["rows"]), parse_number(found["cols"])
            info = self._debug_info(found.get("debug", ""))
            info.check_rows(len(self.matrices), rows)
            self.matrices.append((rows, cols))
            self.infos.append(info)
        elif "submatrices" in found:
            for text in _items(found["submatrices"]):
                self.submatrices.append(self._submatrix(text, len(self.submatrices)))
        elif "list" in found:
            self._add_list(found["list_kind"], int(found["list_number"]), found["list"])
        elif "precomputed" in found:
            number = int(found["precomputed"])
            _expect_number("p", number, len(self.precomputed))
            self.precomputed.append(serialization.from_json(found["json"], PrecomputedIndexes))
        elif "steps" in found:
            for item in _items(found["steps"]):
                step = re.fullmatch(r"(\S+) (\d+)", item)
                if step is None:
                    raise ValueError(f"expected a node and a number of rows, got '{item}'")
                self.steps.append((self._node(step[1]), parse_number(step[2])))
        elif "command" in found:
            _expect_number("c", int(found["position"]), len(self.commands))
            self.commands.append(read_command(found["command"], self._numbers))
        elif "digests" in found:
            digests = self.digests.setdefault(found["digests_of"], bytearray())
            for text in _items(found["digests"]):
                if re.fullmatch(f"[0-9a-f]{{{2 * DIGEST_BYTES}}}", text) is None:
                    raise ValueError(f"expected {DIGEST_BYTES} bytes in hexadecimal, got '{text}'")
                digests += bytes.fromhex(text)
        elif "request" in found:
            self.requests.append(serialization.from_json(found["request"], RequestFingerprint))
        elif "memory_plan" in found:
            self.memory_plan = serialization.from_json(found["memory_plan"], MemoryPlan)
        else:
            raise ValueError(f"'{line}' can only be the first line")

    @cached_property
    def _numbers(self) -> Numbers:
        """Names of operands; matrices and submatrices must have been declared before."""
        matrices = np.array(self.matrices, np.int32)
        names = submatrix_names(np.array(self.submatrices, np.int32), matrices)
        submatrices = {name: number for number, name in names.items()}
        return {
            OperandKind.SUBMATRIX: submatrices,
            OperandKind.WHOLE_MATRIX: submatrices,
            OperandKind.NODE: self.nodes,
            OperandKind.COMPONENT: self.components,
        }

    def _network(self) -> NetworkFingerprint | None:
        """Returns the fingerprint of the network, if there are lines about it."""
        if not self.digests:
            return None
        return NetworkFingerprint(
            **{
                what: np.frombuffer(bytes(self.digests.get(what, b"")), np.uint8).reshape(
                    -1, DIGEST_BYTES
                )
                for what in ("nodes", "components")
            }
        )

    def _node(self, name: str) -> int:
        return look_up({OperandKind.NODE: self.nodes}, OperandKind.NODE, name)

    def _submatrix(self, text: str, number: int) -> list[int]:
        match = re.fullmatch(r"m(\d+)(?:\((.+), (.+)\))?(?:#(\d+))?", text)
        if match is None or re.fullmatch(SUBMATRIX, text) is None:
            raise ValueError(f"expected a submatrix, got '{text}'")
        if match[4] is not None and int(match[4]) != number:
            raise ValueError(f"'{text}' is number {number} of the submatrices, not {match[4]}")
        matrix = int(match[1])
        if not 0 < matrix < len(self.matrices):
            raise ValueError(f"the matrix m{matrix} is not declared above")
        row = [matrix]
        for size, written in zip(self.matrices[matrix], (match[2], match[3]), strict=True):
            if written in (None, ":"):
                row += [0, size]
                continue
            first, last = map(parse_number, written.split(":"))
            if last < first:
                raise ValueError(f"the range {written} of '{text}' is empty")
            if last >= size:
                raise ValueError(
                    f"the range {written} of '{text}' goes beyond the {size} of m{matrix}"
                )
            row += [first, last - first + 1]
        return row

    def _debug_info(self, text: str) -> parts.MatrixDebugInfo:
        match = re.fullmatch(
            r"(value|deriv)(?: of sequences (.+) in blocks of (\d+))?(?: of (.*))?", text
        )
        if match is None:
            if text:
                raise ValueError(f"expected what the matrix holds, got '{text}'")
            return parts.NO_DEBUG_INFO
        if match[4] is None:
            return parts.MatrixDebugInfo(is_deriv=match[1] == "deriv", pattern=())
        return parts.MatrixDebugInfo(
            is_deriv=match[1] == "deriv",
            pattern=np.concatenate([self._cindexes(item) for item in match[4].split("; ")]),
            sequences=parse_numbers(match[2] or ""),
            block=parse_number(match[3] or "1"),
        )

    def _cindexes(self, text: str) -> arrays.IntArray:
        name, colon, indexes = text.partition(": ")
        if not colon:
            raise ValueError(f"expected a node and its indexes, got '{text}'")
        rows = _indexes(indexes)
        return np.hstack([np.full((len(rows), 1), self._node(name), np.int32), rows])

    def _add_list(self, kind: str, number: int, text: str) -> None:
        _expect_number(kind, number, len(self.lists[kind]))
        parse: dict[str, Callable[[str], arrays.IntArray]] = {
            "i": parse_numbers,
            "j": self._multi,
            "r": _ranges,
        }
        self.lists[kind].append(parse[kind](text))

    def _multi(self, text: str) -> arrays.IntArray:
        pairs = [np.zeros((0, 2), np.int32)]
        for item in _items(text):
            match = re.fullmatch(rf"({SUBMATRIX})\[(.*)\]|-(?:x(\d+))?", item)
            if match is None:
                raise ValueError(f"expected rows of a submatrix, or '-', got '{item}'")
            if match[1] is None:
                pairs.append(np.full((parse_length(match[3] or "1"), 2), -1, np.int32))
                continue
            rows = parse_numbers(match[2])
            submatrix = np.full(
                len(rows), look_up(self._numbers, OperandKind.SUBMATRIX, match[1]), np.int32
            )
            pairs.append(np.column_stack([submatrix, rows]))
        return np.concatenate(pairs)


def _expect_number(prefix: str, number: int, expected: int) -> None:
    if number != expected:
        raise ValueError(f"expected {prefix}{expected}, got {prefix}{number}")


def _items(text: str) -> list[str]:
    """Splits at the commas that are outside brackets."""
    items, depth, begin = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            items.append(text[begin:place].strip())
            begin = place + 1
    items.append(text[begin:].strip())
    return [item for item in items if item]


def _indexes(text: str) -> arrays.IntArray:
    """Returns the (rows, 3) indexes of a text such as (0,-2:7), (1,pad)."""
    rows = [np.zeros((0, 3), np.int64)]
    item_pattern = re.compile(rf"\({ITEM}(?:,{ITEM}){{1,2}}\)")
    for item in _items(text.replace("pad", str(NO_TIME))):
        if item_pattern.fullmatch(item) is None:
            raise ValueError(f"expected an index (n,t) or (n,t,x), got '{item}'")
        columns = [parse_progression(part) for part in item[1:-1].split(",")]
        length = max(count for _, count, _ in columns)
        if any(count not in (1, length) for _, count, _ in columns):
            raise ValueError(f"the runs of '{item}' differ in length")
        table = np.zeros((length, 3), np.int64)
        for column, (first, _, step) in enumerate(columns):
            table[:, column] = first + step * np.arange(length)
        rows.append(table)
    return np.concatenate(rows).astype(np.int32)


_RANGES = re.compile(r"(?:-|(\d+)\.\.(\d+))(?: \+ (-?\d+) x (\d+))?")


def _ranges(text: str) -> arrays.IntArray:
    """Returns the (rows, 2) ranges of a text such as 0..5, -, 0..2 + 2 x 10."""
    ranges = [np.zeros((0, 2), np.int64)]
    for item in _items(text):
        match = _RANGES.fullmatch(item)
        if match is None:
            raise ValueError(f"expected a range such as 0..5, or '-', got '{item}'")
        first = [parse_number(match[1] or "-1"), parse_number(match[2] or "-1")]
        step, length = parse_number(match[3] or "0"), parse_length(match[4] or "1")
        ranges.append(np.array(first) + step * np.arange(length)[:, None])
    table = np.concatenate(ranges)
    if len(table) and int(table.max()) >= 2**31:
        raise ValueError("a number does not fit in 32 bits")
    return table.astype(np.int32)
