"""Printing a computation; the format is described in `nnet3_computation.text`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from nnet3_descriptors import Nnet, serialization
from nnet3_descriptors.indexes import NO_TIME

from nnet3_computation import arrays, commands, errors
from nnet3_computation.commands.declaration import OPCODE_COLUMN, Command, OperandKind
from nnet3_computation.computation import NnetComputation, parts
from nnet3_computation.text.commands import (
    ABSENT,
    Names,
    command_text,
    format_numbers,
    format_progression,
    runs,
    submatrix_names,
)

WIDTH = 100
"""Long lists are broken into lines of about this length."""
NEIGHBOURS = 3
"""How many commands a message shows before and after the command in question."""


def format_computation(computation: NnetComputation, nnet: Nnet | None = None) -> str:
    """Returns a computation as text; `parse_computation` is the inverse.

    Args:
        computation: The computation.
        nnet: The network, for the names of nodes and components; without it they are called
            node3, component3.

    Raises:
        ComputationError: The network lacks a node or component of the computation.
    """
    return "\n".join(_lines(computation, nnet)) + "\n"


def operand_names(computation: NnetComputation, nnet: Nnet | None) -> Names:
    """Returns the names of the operands of a computation.

    Raises:
        ComputationError: The network lacks a node or component of the computation.
    """
    nodes = _operands(computation, OperandKind.NODE) | {*computation.steps[:, 0].tolist()}
    for info in computation.matrix_debug_info:
        nodes.update(info.pattern[arrays.run_starts(info.pattern[:, 0]), 0].tolist())
    components = _operands(computation, OperandKind.COMPONENT)
    submatrices = submatrix_names(computation.submatrices, computation.matrices)
    return {
        OperandKind.SUBMATRIX: submatrices,
        OperandKind.WHOLE_MATRIX: submatrices,
        OperandKind.NODE: _names("node", nodes, nnet.node_names if nnet else None),
        OperandKind.COMPONENT: _names(
            "component", components, nnet.component_names if nnet else None
        ),
    }


def command_line(number: int, command: Command, names: Names) -> str:
    """Returns the line of a command."""
    return f"c{number}: {command_text(command, names)}"


def command_lines(computation: NnetComputation, nnet: Nnet, positions: Iterable[int]) -> list[str]:
    """Returns the commands at some positions, a line each, as `format_computation` prints them."""
    try:
        names = operand_names(computation, nnet)
    except errors.ComputationError:  # it names a node or component that the network lacks
        names = operand_names(computation, None)
    return [command_line(at, computation.commands[at], names) for at in positions]


def list_commands(computation: NnetComputation, nnet: Nnet, command: int) -> str:
    """Returns a command, marked, with the commands before and after it, a line each."""
    last = min(command + NEIGHBOURS, len(computation.command_table) - 1)
    shown = range(max(0, command - NEIGHBOURS), last + 1)
    return "\n".join(
        f"  {'>' if at == command else ' '} {line}"
        for at, line in zip(shown, command_lines(computation, nnet, shown), strict=True)
    )


def program_lines(computation: NnetComputation) -> list[str]:
    """Returns the sizes of the matrices and the commands, a line each, without a network's names.

    `format_computation` gives names of nodes and components, and everything else, too.
    """
    names = operand_names(computation, None)
    sizes = enumerate(computation.matrices.tolist())
    return [
        *(f"m{number} = {rows} x {cols}" for number, (rows, cols) in sizes if number),
        *(command_line(at, command, names) for at, command in enumerate(computation.commands)),
    ]


def _lines(computation: NnetComputation, nnet: Nnet | None) -> Iterator[str]:
    names = operand_names(computation, nnet)
    yield "nnet3 computation 2"
    yield f"need_model_derivative = {str(computation.need_model_derivative).lower()}"
    yield f"debug_info = {str(bool(computation.matrix_debug_info)).lower()}"
    for number, name in names[OperandKind.NODE].items():
        yield f"node {name} = {number}"
    for number, name in names[OperandKind.COMPONENT].items():
        yield f"component {name} = {number}"
    infos = computation.matrix_debug_info or (None,) * len(computation.matrices)
    for number, ((rows, cols), info) in enumerate(
        zip(computation.matrices.tolist(), infos, strict=True)
    ):
        if number:
            yield f"m{number} = {rows} x {cols}{_debug_text(info, names)}"
    submatrices = names[OperandKind.SUBMATRIX]
    yield from _wrapped("submatrices", [*submatrices.values()][1:])
    for number, indexes in enumerate(computation.indexes):
        yield f"i{number} = {format_numbers(indexes)}"
    for number, pairs in enumerate(computation.indexes_multi):
        yield f"j{number} = {_multi_text(pairs, submatrices)}"
    for number, ranges in enumerate(computation.indexes_ranges):
        yield f"r{number} = {_ranges_text(ranges)}"
    for number, precomputed in enumerate(computation.precomputed_indexes):
        if precomputed is not None:
            yield f"p{number} = {serialization.to_json(precomputed)}"
    steps = [f"{names[OperandKind.NODE][node]} {rows}" for node, rows in computation.steps.tolist()]
    yield from _wrapped("steps", steps)
    for number, command in enumerate(computation.commands):
        yield command_line(number, command, names)
    if computation.network is not None:
        network = computation.network
        for what, digests in (("nodes", network.nodes), ("components", network.components)):
            texts = (digest.tobytes().hex() for digest in digests)
            yield from _wrapped(f"fingerprint of {what}", texts)
    for request in computation.requests:
        yield f"request: {serialization.to_json(request)}"
    if computation.memory_plan is not None:
        yield f"memory plan: {serialization.to_json(computation.memory_plan)}"


def _names(what: str, used: set[int], names: Sequence[str] | None) -> dict[int, str]:
    """Returns the names of some nodes, or components, by number; made-up ones without a network."""
    if names is not None and used and max(used) >= len(names):
        raise errors.of_another_network(what, max(used), len(names))
    return {
        number: names[number] if names is not None else f"{what}{number}" for number in sorted(used)
    }


def _operands(computation: NnetComputation, kind: OperandKind) -> set[int]:
    """Returns all values of operands of a kind."""
    table = computation.command_table
    values = table[commands.SCHEMA.kind[table[:, OPCODE_COLUMN]] == kind]
    return set(np.unique(values).tolist())


def _wrapped(title: str, items: Iterable[str]) -> Iterator[str]:
    """Returns lines that begin with a title and hold items, separated by commas."""
    line = f"{title}:"
    for item in items:
        if len(line) + len(item) > WIDTH and not line.endswith(":"):
            yield line
            line = f"{title}:"
        line += f"{',' if not line.endswith(':') else ''} {item}"
    if not line.endswith(":"):
        yield line


def _debug_text(info: parts.MatrixDebugInfo | None, names: Names) -> str:
    if info is None or not (info.is_deriv or len(info.pattern)):
        return ""
    text = f", {'deriv' if info.is_deriv else 'value'}"
    if not len(info.pattern):
        return text
    if len(info.sequences):
        text += f" of sequences {format_numbers(info.sequences)} in blocks of {info.block}"
    nodes = names[OperandKind.NODE]
    of_nodes = [
        f"{nodes[int(info.pattern[begin, 0])]}: {_index_text(info.pattern[begin:end, 1:])}"
        for begin, end in _runs_of(info.pattern[:, 0])
    ]
    return f"{text} of {'; '.join(of_nodes)}"


def _index_text(indexes: arrays.IntArray) -> str:
    """Returns (rows, 3) indexes as text: (n,t) or (n,t,x), with runs of t, n and x."""
    items = []
    table = indexes.astype(np.int64)
    for row, length, step in runs(table):
        columns = [
            format_progression(int(table[row, column]), length, int(step[column]))
            if step[column] or column == 1
            else str(table[row, column])
            for column in range(3)
        ]
        columns[1] = columns[1].replace(str(NO_TIME), "pad")
        if columns[2] == "0":
            del columns[2]
        items.append(f"({','.join(columns)})")
    return ", ".join(items)


def _multi_text(pairs: arrays.IntArray, submatrices: Mapping[int, str]) -> str:
    """Returns (submatrix, row) pairs: m3(0:9, :)[2:5]; "-" for none."""
    items = []
    for begin, end in _runs_of(pairs[:, 0]):
        rows = pairs[begin:end, 1]
        if pairs[begin, 0] < 0:
            items.append(ABSENT if end == begin + 1 else f"{ABSENT}x{end - begin}")
        else:
            items.append(f"{submatrices[int(pairs[begin, 0])]}[{format_numbers(rows)}]")
    return ", ".join(items)


def _runs_of(values: arrays.IntArray) -> Iterator[tuple[int, int]]:
    """Returns the runs of equal values, as begin and end."""
    return pairwise([*np.flatnonzero(arrays.run_starts(values)).tolist(), len(values)])


def _ranges_text(ranges: arrays.IntArray) -> str:
    """Returns (begin, end) pairs: 0..5 without the end; progressions as 0..2 + 2 x 10."""
    items = []
    table = ranges.astype(np.int64)
    for row, length, step in runs(table):
        if length > 1 and step[0] != step[1]:
            items += [_range_item(*table[row + place].tolist()) for place in range(length)]
            continue
        item = _range_item(*table[row].tolist())
        items.append(item if length == 1 else f"{item} + {step[0]} x {length}")
    return ", ".join(items)


def _range_item(begin: int, end: int) -> str:
    return ABSENT if begin < 0 else f"{begin}..{end}"
