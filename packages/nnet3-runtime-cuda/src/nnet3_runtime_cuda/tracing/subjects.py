"""The node, bytes and text of each command of a computation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
from nnet3_computation import NnetComputation, OperandKind
from nnet3_computation.commands import Access, Command
from nnet3_computation.computation import NODE, N, T, X
from nnet3_computation.text import command_lines
from nnet3_descriptors import ComponentInputNode, ComponentNode, Nnet

_MATRICES = (OperandKind.SUBMATRIX, OperandKind.WHOLE_MATRIX)
_FLOAT_BYTES = 4


@attrs.frozen(kw_only=True)
class Subject:
    """The node, bytes and text of a command; see `CommandProfile`."""

    kind: str
    text: str
    node: str
    nbytes: int


class Subjects:
    """Finds the subjects of commands of a computation."""

    def __init__(self, nnet: Nnet, computation: NnetComputation) -> None:
        """Reads which matrices belong to which nodes."""
        self._nnet, self._computation = nnet, computation
        names: dict[str, list[str]] = {}
        for node in nnet.nodes:
            if isinstance(node, ComponentNode):
                names.setdefault(node.component, []).append(node.name)
        self._nodes_by_component = [names.get(name, []) for name in nnet.component_names]

    def of(self, positions: Sequence[int]) -> list[Subject]:
        """The subjects of the commands at these positions."""
        commands = self._computation.commands
        lines = command_lines(self._computation, self._nnet, positions)
        return [
            Subject(
                kind=type(command).__name__,
                text=line.partition(": ")[2],
                node=self._node(command),
                nbytes=self._nbytes(command),
            )
            for command, line in zip((commands[at] for at in positions), lines, strict=True)
        ]

    def index(self, matrix: int, row: int) -> tuple[int, int, int] | None:
        """The (n, t, x) of a row of a matrix; None if not known."""
        cindex = self._cindex(matrix, row)
        return None if cindex is None else (cindex[N], cindex[T], cindex[X])

    def name(self) -> str:
        """Inputs and outputs of the computation, with their rows."""
        given: list[str] = []
        wanted: list[str] = []
        for command in self._computation.commands:
            kind = type(command).__name__
            if kind in ("AcceptInput", "ProvideOutput"):
                node, submatrix = (self._number(command, name) for name in ("node", "matrix"))
                rows = int(self._computation.submatrices[submatrix, 2])
                text = f"{self._nnet.nodes[node].name} {rows}"
                (given if kind == "AcceptInput" else wanted).append(text)
        return f"{', '.join(given) or 'nothing'} -> {', '.join(wanted) or 'nothing'}"

    # ---- nodes ----

    def _node(self, command: Command) -> str:
        written = [self._node_of_row(*place) for place in self._places(command, Access.WRITE)]
        for operand in command.OPERANDS:
            number = self._number(command, operand.name)
            if operand.kind == OperandKind.NODE:
                return self._nnet.nodes[number].name
            if operand.kind == OperandKind.COMPONENT:
                names = self._nodes_by_component[number]
                read = (self._node_of_row(*place) for place in self._places(command, Access.READ))
                # If several nodes share the component, the matrix tells which node it is.
                known = (name for name in (*written, *read) if name in names)
                return names[0] if len(names) == 1 else next(known, " or ".join(names))
        return next(iter(written), "")

    def _node_of_row(self, submatrix: int, row: int) -> str:
        matrix, row_offset = self._computation.submatrices[submatrix, :2].tolist()
        cindex = self._cindex(matrix, row_offset + row)
        if cindex is None:
            return ""
        nodes, number = self._nnet.nodes, cindex[NODE]
        # The input of a component counts as the component's node, which follows it.
        return nodes[number + isinstance(nodes[number], ComponentInputNode)].name

    def _cindex(self, matrix: int, row: int) -> list[int] | None:
        infos = self._computation.matrix_debug_info
        if not infos or row >= infos[matrix].num_rows:
            return None
        cindex: list[int] = infos[matrix].cindexes_of(row, row + 1)[0].tolist()
        return cindex

    def _places(self, command: Command, access: Access) -> Iterator[tuple[int, int]]:
        """Submatrix and row where each operand that a command reads or writes begins."""
        for operand in command.OPERANDS:
            number = self._number(command, operand.name)
            if not operand.access & access:
                continue
            if operand.kind in _MATRICES and number:
                yield number, 0
            elif operand.kind == OperandKind.INDEXES_MULTI:
                pairs = self._computation.indexes_multi[number]
                present = pairs[pairs[:, 0] >= 0]
                if len(present):
                    submatrix, row = present[0].tolist()
                    yield submatrix, row

    # ---- bytes ----

    def _nbytes(self, command: Command) -> int:
        elements = 0
        for operand in command.OPERANDS:
            number = self._number(command, operand.name)
            times = int(operand.access).bit_count()  # once to read, once to write
            if operand.kind in _MATRICES:
                elements += times * self._size(number)
            elif operand.kind == OperandKind.INDEXES_MULTI:
                pairs = self._computation.indexes_multi[number]
                submatrices = pairs[pairs[:, 0] >= 0, 0]
                elements += times * int(self._computation.submatrices[submatrices, 4].sum())
            elif operand.kind == OperandKind.COMPONENT:
                elements += self._nnet.components[number].num_parameters
        return elements * _FLOAT_BYTES

    def _size(self, submatrix: int) -> int:
        _, _, rows, _, columns = self._computation.submatrices[submatrix].astype(np.int64).tolist()
        return rows * columns if submatrix else 0

    @staticmethod
    def _number(command: Command, operand: str) -> int:
        number: int = getattr(command, operand)
        return number
