"""NnetComputation: a straight-line program of matrix commands, and its serialized form.

In this form lists of arrays are stored end to end, with their bounds. The container is that of all
serialized values (nnet3_descriptors).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, overload

import attrs
import numpy as np
from nnet3_descriptors.components import PrecomputedIndexes
from nnet3_descriptors.structure import Digests, NetworkFingerprint
from nnet3_descriptors.values import Serialized, shown

from nnet3_computation import arrays, request
from nnet3_computation.arrays import IntArray, concatenated, split_at
from nnet3_computation.commands import SCHEMA, AcceptInput, NoOperationMarker, ProvideOutput, tables
from nnet3_computation.commands.declaration import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    Command,
    OperandKind,
)
from nnet3_computation.computation.parts import MatrixDebugInfo, MemoryPlan
from nnet3_computation.computation.tables import ComputationTables, validate, whole_submatrices
from nnet3_computation.errors import ComputationError, of_another_network
from nnet3_computation.request import RequestFingerprint

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

    from nnet3_computation.request import ComputationRequest


Content = dict[str, Any]


def _from_1(content: Content) -> Content:
    """Version 2 adds the fingerprints and the memory plan; version 1 has none of them."""
    return {
        **content,
        "network_nodes": None,
        "network_components": None,
        "requests": [],
        "memory_plan": None,
    }


UPGRADES: Final[Mapping[int, Callable[[Content], Content]]] = MappingProxyType({1: _from_1})


@attrs.frozen(kw_only=True, eq=False)
class StoredComputation(Serialized):
    """The fields of `NnetComputation`, with each list of arrays as one array and its bounds.

    List i of `indexes` is indexes[indexes_splits[i]:indexes_splits[i + 1]]; likewise the others.
    debug_info: (matrices, 2), is_deriv and block; empty if there is none.
    """

    FORMAT: ClassVar[str] = "nnet3.computation"
    VERSION: ClassVar[int] = 2
    UPGRADES = UPGRADES

    matrices: IntArray
    submatrices: IntArray
    command_table: IntArray
    indexes: IntArray
    indexes_splits: IntArray
    indexes_multi: IntArray
    indexes_multi_splits: IntArray
    indexes_ranges: IntArray
    indexes_ranges_splits: IntArray
    precomputed_indexes: tuple[PrecomputedIndexes | None, ...]
    need_model_derivative: bool
    debug_info: IntArray
    debug_cindexes: IntArray
    debug_cindexes_splits: IntArray
    debug_sequences: IntArray
    debug_sequences_splits: IntArray
    steps: IntArray
    network_nodes: Digests | None
    network_components: Digests | None
    requests: tuple[RequestFingerprint, ...]
    memory_plan: MemoryPlan | None


_AS_THEY_ARE = (
    "matrices",
    "submatrices",
    "command_table",
    "precomputed_indexes",
    "need_model_derivative",
    "steps",
    "requests",
    "memory_plan",
)
"""Fields of a computation that are stored as they are."""


def store(fields: Mapping[str, Any]) -> bytes:
    """Returns the fields of a computation as bytes."""
    infos, network = fields["matrix_debug_info"], fields["network"]
    stored = {name: fields[name] for name in _AS_THEY_ARE}
    for name, lists, columns in (
        ("indexes", fields["indexes"], None),
        ("indexes_multi", fields["indexes_multi"], 2),
        ("indexes_ranges", fields["indexes_ranges"], 2),
        ("debug_cindexes", [info.pattern for info in infos], 4),
        ("debug_sequences", [info.sequences for info in infos], None),
    ):
        stored[name], stored[f"{name}_splits"] = concatenated(lists, columns)
    flags = [(info.is_deriv, info.block) for info in infos]
    return StoredComputation(
        **stored,
        debug_info=np.array(flags, np.int32).reshape(-1, 2),
        network_nodes=None if network is None else network.nodes,
        network_components=None if network is None else network.components,
    ).to_bytes()


def restore(data: bytes) -> dict[str, Any]:
    """Returns the fields of the computation that `store` wrote.

    Raises:
        Nnet3Error: The bytes hold no computation.
    """
    stored = StoredComputation.from_bytes(data)
    patterns, sequences = _split(stored, "debug_cindexes"), _split(stored, "debug_sequences")
    if stored.debug_info.ndim != 2 or stored.debug_info.shape[1] != 2:
        raise ComputationError(
            f"debug_info must have the shape (matrices, 2) (got {stored.debug_info.shape})"
        )
    flags = stored.debug_info.tolist()
    if not len(flags) == len(patterns) == len(sequences):
        raise ComputationError("debug_info, debug_cindexes and debug_sequences differ in length")
    nodes, components = stored.network_nodes, stored.network_components
    if (nodes is None) != (components is None):
        raise ComputationError("network_nodes and network_components go together")
    lists = ("indexes", "indexes_multi", "indexes_ranges")
    return {
        **{name: getattr(stored, name) for name in _AS_THEY_ARE},
        **{name: _split(stored, name) for name in lists},
        "matrix_debug_info": tuple(
            MatrixDebugInfo(is_deriv=bool(is_deriv), pattern=pattern, sequences=n, block=block)
            for (is_deriv, block), pattern, n in zip(flags, patterns, sequences, strict=True)
        ),
        "network": None
        if nodes is None or components is None
        else NetworkFingerprint(nodes=nodes, components=components),
    }


def _split(stored: StoredComputation, name: str) -> tuple[IntArray, ...]:
    """Returns the lists of a field."""
    values, splits = getattr(stored, name), getattr(stored, f"{name}_splits")
    if values.ndim == 0:
        raise ComputationError(f"{name} must have rows (got a single number)")
    rises = splits.ndim == 1 and len(splits) > 0 and not (np.diff(splits) < 0).any()
    if not rises or splits[0] != 0 or splits[-1] != len(values):
        raise ComputationError(f"{name}_splits must rise from 0 to {len(values)}")
    return split_at(values, splits)


_NODE_COLUMN = np.argmax(SCHEMA.kind == OperandKind.NODE, axis=1)
"""The column of the node by opcode, (opcodes,); 0 if there is none."""


_MOST_IN_REPR = 10
"""The number of commands that the repr of a sequence shows."""

_OWN_EQUALITY = frozenset({"matrix_debug_info", "memory_plan", "network", "requests"})
"""Fields whose classes define equality themselves."""


@functools.lru_cache(maxsize=8192)
def _command_of(row: tuple[int, ...]) -> Command:
    """The command of a row. Many look at the same program, one after the other."""
    return SCHEMA.command(row)


class CommandSequence(Sequence[Command]):
    """The commands of a computation as objects, made from the table when they are asked for."""

    __slots__ = ("_table",)

    def __init__(self, table: arrays.IntArray) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, index: int) -> Command: ...
    @overload
    def __getitem__(self, index: slice) -> CommandSequence: ...
    def __getitem__(self, index: int | slice) -> Command | CommandSequence:
        if isinstance(index, slice):
            return CommandSequence(self._table[index])
        return _command_of(tuple(self._table[index].tolist()))

    def __iter__(self) -> Iterator[Command]:
        return map(_command_of, map(tuple, self._table.tolist()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if len(self) <= _MOST_IN_REPR:
            return f"CommandSequence({list(self)!r})"
        return f"<CommandSequence of {len(self):,} commands, {self[0]!r} to {self[-1]!r}>"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class NnetComputation(ComputationTables, Serialized):
    """A compiled computation. It is plain data: no device state, no network, nothing mutable.

    Matrix 0 and submatrix 0 are the empty ones, and stand for "none". All matrices are row-major
    without padding. Numbers of nodes and components are those of the network that it was compiled
    for; everything else refers to the fields below.

    Attributes:
        matrices: (M, 2) int32: rows, columns.
        submatrices: (S, 5) int32: matrix, row_offset, num_rows, col_offset, num_cols.
        command_table: (C, TABLE_WIDTH) int32, one command in each row; `commands` shows it as
            objects, `SCHEMA` says what the columns of each opcode are.
        indexes: Lists of rows; -1 for none.
        indexes_multi: (rows, 2) int32 each: submatrix, row; (-1, -1) for none.
        indexes_ranges: (rows, 2) int32 each: begin, end (not included); (-1, -1) for none.
        precomputed_indexes: The precomputed indexes of non-simple components; entry 0 is None.
        need_model_derivative: Whether the model derivative was asked for.
        matrix_debug_info: The cindexes of the rows of each matrix; empty if not wanted.
        steps: (steps, 2) int32: node and number of rows of the steps from which it was compiled,
            without steps that have no rows; empty if not known. Passes do not change it.
        network: The fingerprint of the network that it was compiled for; None if not known.
        requests: The fingerprint of the request of each segment that it was compiled from, in
            order; empty if not known. A loop has those of the first segments.
        memory_plan: Places for the matrices in one arena; None if the runtime decides.

    Raises:
        ComputationError: A field has a wrong type or shape, or the parts contradict each other.
    """

    FORMAT: ClassVar[str] = StoredComputation.FORMAT
    VERSION: ClassVar[int] = StoredComputation.VERSION

    def __attrs_post_init__(self) -> None:
        validate(self)

    @property
    def commands(self) -> CommandSequence:
        """The commands as objects."""
        return CommandSequence(self.command_table)

    @property
    def segment_ends(self) -> tuple[int, ...]:
        """Positions of all NoOperationMarkers: the ends of segments."""
        markers = self.command_table[:, OPCODE_COLUMN] == NoOperationMarker.OPCODE
        return tuple(np.flatnonzero(markers).tolist())

    @property
    def forward_segments(self) -> tuple[tuple[range, ...], int | None]:
        """The commands of each forward segment, and the segment that a loop goes back to.

        The last segment of a loop includes the way back to its label. None if there is no loop.
        """
        commands = len(self.command_table)
        starts = [0, *(end + 1 for end in self.segment_ends)]
        ends = starts[1:] or [commands]
        loop = None
        if tables.is_loop(self.command_table):
            loop = starts.index(int(self.command_table[-1, FIRST_OPERAND_COLUMN]))
            ends[-1] = commands
        return tuple(map(range, starts, ends)), loop

    @property
    def forward_end(self) -> int:
        """Position of the last NoOperationMarker: backward commands, if any, follow it.

        The number of commands if there is none.
        """
        return self.segment_ends[-1] if self.segment_ends else len(self.command_table)

    @property
    def input_output_info(self) -> dict[int, tuple[int, int]]:
        """The submatrices of inputs and outputs: node -> (of the value, of the derivative).

        A submatrix is 0 if the user neither gives nor takes it. Of a computation in several
        segments this is the last segment.
        """
        table = self.command_table
        opcodes = table[:, OPCODE_COLUMN]
        wanted = (opcodes == AcceptInput.OPCODE) | (opcodes == ProvideOutput.OPCODE)
        forward_end = self.forward_end
        info: dict[int, tuple[int, int]] = {}
        for position in np.flatnonzero(wanted).tolist():
            matrix, node = table[position, FIRST_OPERAND_COLUMN : FIRST_OPERAND_COLUMN + 2].tolist()
            value, deriv = info.get(node, (0, 0))
            info[node] = (matrix, deriv) if position < forward_end else (value, matrix)
        return info

    @property
    def whole_submatrices(self) -> arrays.IntArray:
        """For each matrix a submatrix that covers it, the first one: (M,) int32; 0 if none does."""
        covers = whole_submatrices(self.submatrices, self.matrices)
        found = np.zeros(len(self.matrices), np.int32)
        submatrix = np.flatnonzero(covers)[::-1]
        found[self.submatrices[submatrix, 0]] = submatrix
        return found

    def check_network(self, nnet: Nnet) -> None:
        """Checks that this was compiled for a network, as far as the computation tells.

        Without a fingerprint it has to have the nodes and components that the commands name.

        Raises:
            ComputationError: It was compiled for another network; the message names what differs.
        """
        if self.network is not None:
            difference = self.network.difference(nnet)
            if difference is not None:
                raise ComputationError(f"the computation is of another network: {difference}")
        opcodes = self.command_table[:, OPCODE_COLUMN]
        for what, column_of, count in (
            ("node", _NODE_COLUMN, len(nnet.nodes)),
            ("component", SCHEMA.component_column, len(nnet.components)),
        ):
            columns = column_of.take(opcodes)
            commands = columns.nonzero()[0]
            last = int(self.command_table[commands, columns[commands]].max(initial=-1))
            if last >= count:
                raise of_another_network(what, last, count)

    def check_request(self, *requests: ComputationRequest) -> None:
        """Checks that this was compiled for a request, or for several segments, if that is known.

        Args:
            requests: The request of each segment; of a loop, those of its first segments.

        Raises:
            ComputationError: It was compiled for another; the message names what differs.
        """
        if not self.requests:
            return
        if len(requests) > len(self.requests) or (
            len(requests) < len(self.requests) and not tables.is_loop(self.command_table)
        ):
            raise ComputationError(
                f"the computation is of another request: it was made for {len(self.requests)} "
                f"segments, not {len(requests)}"
            )
        for number, (made, asked) in enumerate(zip(self.requests, requests, strict=False)):
            difference = made.difference(request.RequestFingerprint.of(asked))
            if difference is not None:
                segment = f"segment {number}: " if len(self.requests) > 1 else ""
                raise ComputationError(
                    f"the computation is of another request: {segment}{difference}"
                )

    def steps_by_node(self, nnet: Nnet) -> list[tuple[str, int]]:
        """Returns the steps it was compiled from: node name and number of rows of each.

        A step without rows, the input of a component that needs none, is left out.

        Raises:
            ComputationError: The network lacks a node of the computation.
        """
        names, last = nnet.node_names, int(self.steps[:, 0].max(initial=-1))
        if last >= len(names):
            raise of_another_network("node", last, len(names))
        return [(names[node], rows) for node, rows in self.steps.tolist() if rows]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NnetComputation):
            return NotImplemented
        names = {field.name for field in attrs.fields(NnetComputation)} - _OWN_EQUALITY
        return all(
            arrays.same(getattr(self, name), getattr(other, name)) for name in names
        ) and all(getattr(self, name) == getattr(other, name) for name in _OWN_EQUALITY)

    def __hash__(self) -> int:
        return hash((self.command_table.tobytes(), self.submatrices.tobytes()))

    def __repr__(self) -> str:
        return (
            f"<NnetComputation: {len(self.command_table)} commands, {len(self.matrices) - 1} "
            f"matrices, {len(self.submatrices) - 1} submatrices>"
        )

    def __str__(self) -> str:
        """Matrices and commands, a line each; `format_computation` has the names, too."""
        from nnet3_computation.text import program_lines

        return "\n".join([repr(self), *program_lines(self)])

    def _repr_html_(self) -> str | None:
        """The requests, memory over time, and the commands, for notebooks."""
        return shown("computation_html", self)

    def to_bytes(self) -> bytes:
        """Returns the computation as a safetensors container; equal ones give equal bytes."""
        return store(attrs.asdict(self, recurse=False))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Returns the inverse of `to_bytes`.

        Raises:
            Nnet3Error: The bytes are not a serialized computation, or hold an invalid one.
        """
        computation = cls(**restore(data))
        for matrix, info in enumerate(computation.matrix_debug_info):
            info.check_rows(matrix, int(computation.matrices[matrix, 0]))
        return computation
