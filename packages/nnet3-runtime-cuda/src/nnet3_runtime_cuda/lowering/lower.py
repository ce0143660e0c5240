"""Lowering: each command of a computation becomes calls that are bound to their operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from nnet3_compiler import commands as c
from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.declaration import Command
from nnet3_descriptors.components import ComponentProperties, PrecomputedIndexes

from ..device import DeviceNnet
from ..kernels import Backpropagation, KnownPart, Memo, Propagation, StatsStorage
from ..row_ranges import record_row_range_sums
from ..tape import Array, Scratch, Tape
from .arena import Arena
from .compression import STORED_AS, record_compress, record_decompress
from .hand_over import Move, Place, origins, record_moves, swaps_from
from .known_inputs import KnownSteps, plan_known_inputs
from .pending_zeros import Area, PendingZeros
from .program import Port, Program, Segment
from .regular import Positions
from .rows import record_fill, record_move, record_scaled

Flags = npt.NDArray[np.bool_]
_C = TypeVar("_C", bound=Command)
_BINDERS: dict[type[Command], Callable[[Lowering, Command], None]] = {}


def binds(command_type: type[_C]) -> Callable[[Callable[[Lowering, _C], None]], None]:
    """Registers the function that records the calls of a command class."""

    def register(binder: Callable[[Lowering, _C], None]) -> None:
        _BINDERS[command_type] = binder  # type: ignore[assignment]

    return register


def lower(nnet: DeviceNnet, computation: NnetComputation) -> Program:
    """Binds a computation to memory and to the kernels of a network.

    Raises:
        UnsupportedComponentError: a component type has no arithmetic here.
    """
    return Lowering(nnet, computation).run()


class Lowering:
    """One pass over the commands of a computation.

    Attributes:
        nnet: The network on its device.
        computation: What is lowered.
        arena: The memory of its matrices.
        tape: Records the calls of the current segment.
        memos: By memo number.
        zeros: Zeroed areas that have not been written yet.
        compressed: The command that compressed each matrix that is compressed now.
        updated: Components whose gradient is computed.
        position: Of the current command.
    """

    def __init__(self, nnet: DeviceNnet, computation: NnetComputation) -> None:
        self.nnet = nnet
        self.computation = computation
        self.arena = Arena(computation, nnet.xp, nnet.dtype)
        self.scratch = Scratch(nnet.xp)
        self.tape = Tape(nnet.xp, nnet.dtype, self.scratch)
        self.memos: dict[int, Memo] = {}
        self.zeros = PendingZeros()
        self.updated: set[int] = set()
        self.compressed: dict[int, c.CompressMatrix] = {}
        self._inputs: list[Port] = []
        self._outputs: list[Port] = []
        self._segments: list[Segment] = []
        self._labels: dict[int, int] = {}
        self._loop_to: int | None = None
        self._submatrices = computation.submatrices.tolist()
        self.position = 0
        self._known = plan_known_inputs(
            computation, lambda component: nnet.kernel(component).can_split_input
        )
        self._known_values: dict[int, Array] = {}
        self._known_memory: list[Array] = []

    def run(self) -> Program:
        """Records all commands."""
        forward_end = self.computation.forward_end
        num_forward = 0
        for position, command in enumerate(self.computation.commands):
            self.position = position
            if position == forward_end:
                self.end_segment()
                num_forward = len(self._segments)
            self.tape.begin_command()
            _BINDERS[type(command)](self, command)
        if self.tape.calls or self._inputs or self._outputs:
            self.end_segment()
        if num_forward == 0 or self._loop_to is not None:
            num_forward = len(self._segments)
        backward = self._segments[num_forward:]
        return Program(
            forward=tuple(self._segments[:num_forward]),
            backward=backward[0] if backward else None,
            loop_to=self._loop_to,
            updated=frozenset(self.updated),
            memory_bytes=self.arena.nbytes + self.scratch.nbytes + self.tape.persistent_bytes,
        )

    # ---- segments ----

    def end_segment(self) -> None:
        """Ends the current segment, if anything is in it."""
        if not (self.tape.calls or self._inputs or self._outputs):
            return
        self._segments.append(
            Segment(
                inputs=tuple(self._inputs),
                calls=tuple(self.tape.calls),
                outputs=tuple(self._outputs),
            )
        )
        self._inputs, self._outputs, self.tape.calls = [], [], []

    def accept(self, submatrix: int, node: int) -> None:
        """Adds an input to the current segment; inputs after work begin a new one."""
        if self.tape.calls or self._outputs:
            self.end_segment()
        self._inputs.append(self._port(submatrix, node))

    def provide(self, submatrix: int, node: int) -> None:
        """Adds an output to the current segment."""
        self._outputs.append(self._port(submatrix, node))

    def _port(self, submatrix: int, node: int) -> Port:
        return Port(node=self.nnet.nnet.nodes[node].name, view=self.arena.view(submatrix))

    def label(self) -> None:
        """Notes that a loop begins here."""
        self.flush_zeros()
        self.end_segment()
        self._labels[self.position] = len(self._segments)

    def loop(self, label: int) -> None:
        """Notes that the program continues at a label."""
        self.flush_zeros()
        self.end_segment()
        self._loop_to = self._labels[label]

    # ---- operands ----

    def area(self, submatrix: int) -> tuple[int, Area]:
        """The matrix of a submatrix and the area of it that it covers."""
        matrix, row, rows, column, columns = self._submatrices[submatrix]
        return matrix, Area(row, row + rows, column, column + columns)

    def read(self, submatrix: int) -> Array:
        """A view to read; pending zeros in it are written first."""
        self._flush(submatrix)
        return self.arena.view(submatrix)

    def set(self, submatrix: int) -> Array:
        """A view to set every element of."""
        # What is pending within the area would be overwritten; it is written first all the same
        # only where it reaches beyond the area.
        matrix, area = self.area(submatrix)
        if not self.zeros.take(matrix, area):
            self._flush(submatrix)
        return self.arena.view(submatrix)

    def add_to(self, submatrix: int) -> tuple[Array, bool]:
        """A view to add to, and whether there is anything to add to: else it must be set."""
        matrix, area = self.area(submatrix)
        if self.zeros.take(matrix, area):
            return self.arena.view(submatrix), False
        return self.read(submatrix), True

    def place(self, submatrix: int) -> Place:
        """Where a whole matrix lies; pending zeros in it are written first."""
        matrix, _ = self.area(submatrix)
        return Place(self.arena.offset(matrix), self.read(submatrix))

    def _flush(self, submatrix: int) -> None:
        matrix, area = self.area(submatrix)
        for pending in self.zeros.touching(matrix, area):
            self.write_zeros(matrix, pending)

    def flush_zeros(self) -> None:
        """Writes all zeros that are pending."""
        for matrix, area in self.zeros.all():
            self.write_zeros(matrix, area)

    def write_zeros(self, matrix: int, area: Area) -> None:
        """Records that an area is set to zero."""
        columns = int(self.computation.matrices[matrix, 1])
        start = self.arena.offset(matrix) + area.row * columns + area.column
        shape = (area.row_end - area.row, area.column_end - area.column)
        self.tape.fill(0.0, self.arena.strided(start, shape, (columns, 1)))

    def precomputed(self, number: int) -> PrecomputedIndexes | None:
        """What a component precomputed from indexes, by its number."""
        return self.computation.precomputed_indexes[number]

    def known_part(self) -> KnownPart | None:
        """The part of the current Propagate that is known before; recorded with its first step."""
        steps = self._known.get(self.position)
        if steps is None:
            return None
        if self.position == steps.steps[0].position:
            self._known_values[id(steps)] = self._record_known(steps)
        values = self._known_values[id(steps)]
        if self.position == steps.steps[-1].position:
            # The next such steps may have the memory once this command has run.
            self._known_memory.append(values)
        rows = steps.rows_at(self.position)
        return KnownPart(columns=steps.area.column_end - steps.area.column, value=values[rows])

    def _record_known(self, steps: KnownSteps) -> Array:
        area, step = steps.area, steps.steps[0]
        rows, columns = area.row_end - area.row, area.column_end - area.column
        stride = int(self.computation.matrices[step.source, 1])
        start = self.arena.offset(step.source) + area.row * stride + area.column
        for pending in self.zeros.touching(step.source, area):
            self.write_zeros(step.source, pending)
        x = self.arena.strided(start, (rows, columns), (stride, 1))
        values = self._known_buffer(rows, step.output_dim)
        self.nnet.kernel(step.component).propagate_known(self.tape, x, values[:rows])
        return values

    def _known_buffer(self, rows: int, columns: int) -> Array:
        """Memory that no steps use any more, or new memory."""
        for number, free in enumerate(self._known_memory):
            if len(free) >= rows and free.shape[1] == columns:
                return self._known_memory.pop(number)
        return self.tape.persistent(rows, columns)

    def memo(self, number: int) -> Memo | None:
        """The memo of that number; None for 0."""
        return self.memos.setdefault(number, Memo()) if number else None

    def properties(self, component: int) -> ComponentProperties:
        """The properties of a component."""
        return self.nnet.nnet.components[component].properties

    def multi_positions(self, number: int) -> tuple[Positions, Flags]:
        """Where the rows of a list of (submatrix, row) start, and which entries name none."""
        pairs = self.computation.indexes_multi[number].astype(np.int64)
        present = pairs[:, 0] >= 0
        positions = self.arena.positions(np.where(present, pairs[:, 0], 0), pairs[:, 1])
        return positions, present

    def flush_multi(self, number: int) -> None:
        """Writes what is pending in the submatrices of a list of (submatrix, row)."""
        pairs = self.computation.indexes_multi[number]
        for submatrix in np.unique(pairs[:, 0]).tolist():
            if submatrix >= 0:
                self._flush(submatrix)


# ---- memory ----


@binds(c.AllocMatrixUndefined)
def _alloc_undefined(low: Lowering, command: c.AllocMatrixUndefined) -> None:
    low.zeros.forget(low.area(command.matrix)[0])


@binds(c.AllocMatrixZeroed)
def _alloc_zeroed(low: Lowering, command: c.AllocMatrixZeroed) -> None:
    low.zeros.note(*low.area(command.matrix))


@binds(c.DeallocMatrix)
def _dealloc(low: Lowering, command: c.DeallocMatrix) -> None:
    low.zeros.forget(low.area(command.matrix)[0])


@binds(c.SwapMatrix)
def _swap(low: Lowering, command: c.SwapMatrix) -> None:
    """The destination takes the contents of the source, which has none any more."""
    commands = low.computation.commands
    if low.position and isinstance(commands[low.position - 1], c.SwapMatrix):
        return  # was done together with that one
    moves = []
    for destination, source in origins(swaps_from(commands, low.position)).items():
        from_matrix, area = low.area(source)
        to_matrix, _ = low.area(destination)
        if low.arena.offset(from_matrix) == low.arena.offset(to_matrix):
            pending = low.zeros.touching(from_matrix, area)
            low.zeros.forget(to_matrix)
            for zeros in pending:
                low.zeros.note(to_matrix, zeros)
        else:
            low.zeros.forget(to_matrix)
            moves.append(Move(low.place(source), low.place(destination)))
    record_moves(low.tape, moves)


@binds(c.SetConst)
def _set_const(low: Lowering, command: c.SetConst) -> None:
    if command.alpha == 0.0:
        matrix, area = low.area(command.output)
        for pending in low.zeros.touching(matrix, area):
            if not area.contains(pending):
                low.write_zeros(matrix, pending)
        low.zeros.note(matrix, area)
    else:
        low.tape.fill(command.alpha, low.set(command.output))


@binds(c.CompressMatrix)
def _compress(low: Lowering, command: c.CompressMatrix) -> None:
    record_compress(
        low.tape,
        low.read(command.matrix),
        low.arena.compressed(low.area(command.matrix)[0], STORED_AS[command.compression_type]),
        command.alpha,
        truncate=bool(command.truncate),
    )
    low.compressed[low.area(command.matrix)[0]] = command


@binds(c.DecompressMatrix)
def _decompress(low: Lowering, command: c.DecompressMatrix) -> None:
    matrix = low.area(command.matrix)[0]
    compressed = low.compressed.pop(matrix)
    stored_as = STORED_AS[compressed.compression_type]
    record_decompress(
        low.tape,
        low.arena.compressed(matrix, stored_as),
        low.arena.view(command.matrix),
        compressed.alpha,
    )


# ---- components ----


@binds(c.Propagate)
def _propagate(low: Lowering, command: c.Propagate) -> None:
    properties = low.properties(command.component)
    x = low.read(command.input) if command.input else low.arena.view(0)
    in_place = command.input == command.output
    if properties & ComponentProperties.PROPAGATE_ADDS and not in_place:
        y, add = low.add_to(command.output)
    else:
        y, add = (x if in_place else low.set(command.output)), False
    low.nnet.kernel(command.component).propagate(
        Propagation(
            tape=low.tape,
            x=x,
            y=y,
            add=add,
            indexes=low.precomputed(command.precomputed_indexes),
            memo=low.memo(command.memo),
            known=low.known_part(),
        )
    )


@binds(c.StoreStats)
def _store_stats(low: Lowering, command: c.StoreStats) -> None:
    low.nnet.kernel(command.component).store_stats(
        StatsStorage(tape=low.tape, y=low.read(command.output), memo=low.memo(command.memo))
    )


def _bind_backprop(
    low: Lowering, command: c.Backprop | c.BackpropNoModelUpdate, *, update: bool
) -> None:
    properties = low.properties(command.component)
    x, y, dy = (
        low.read(submatrix) if submatrix else low.arena.view(0)
        for submatrix in (command.input_value, command.output_value, command.output_deriv)
    )
    dx: Array | None = None
    add = False
    if command.input_deriv:
        in_place = command.input_deriv == command.output_deriv
        if properties & ComponentProperties.BACKPROP_ADDS and not in_place:
            dx, add = low.add_to(command.input_deriv)
        else:
            dx = dy if in_place else low.set(command.input_deriv)
    if properties & ComponentProperties.UPDATABLE:
        update = update and low.computation.need_model_derivative
        if update:
            low.updated.add(command.component)
    low.nnet.kernel(command.component).backprop(
        Backpropagation(
            tape=low.tape,
            x=x,
            y=y,
            dy=dy,
            dx=dx,
            add=add,
            indexes=low.precomputed(command.precomputed_indexes),
            memo=low.memo(command.memo),
            update=update,
        )
    )


@binds(c.Backprop)
def _backprop(low: Lowering, command: c.Backprop) -> None:
    _bind_backprop(low, command, update=True)


@binds(c.BackpropNoModelUpdate)
def _backprop_no_model_update(low: Lowering, command: c.BackpropNoModelUpdate) -> None:
    _bind_backprop(low, command, update=False)


# ---- copies and sums ----


@binds(c.MatrixCopy)
def _matrix_copy(low: Lowering, command: c.MatrixCopy) -> None:
    source = low.read(command.input)
    record_scaled(low.tape, source, command.alpha, low.set(command.output), add=False)


@binds(c.MatrixAdd)
def _matrix_add(low: Lowering, command: c.MatrixAdd) -> None:
    source = low.read(command.input)
    output, add = low.add_to(command.output)
    record_scaled(low.tape, source, command.alpha, output, add=add)


def _bind_rows(
    low: Lowering,
    output: int,
    source: Positions,
    present: Flags,
    alpha: float,
    *,
    add: bool,
    zero_absent: bool,
) -> None:
    """Records the rows of `output` as (alpha times) rows elsewhere, where there are any."""
    target = low.arena.row_positions(output)
    columns = low.area(output)[1].column_end - low.area(output)[1].column
    if zero_absent:
        record_fill(low.tape, low.arena, target[~present], columns, 0.0)
    record_move(low.tape, low.arena, target[present], source[present], columns, alpha, add=add)


@binds(c.CopyRows)
def _copy_rows(low: Lowering, command: c.CopyRows) -> None:
    low.read(command.input)
    low.set(command.output)
    source, present = _indexed_rows(low, command.input, command.indexes)
    _bind_rows(low, command.output, source, present, command.alpha, add=False, zero_absent=True)


@binds(c.AddRows)
def _add_rows(low: Lowering, command: c.AddRows) -> None:
    low.read(command.input)
    _, add = low.add_to(command.output)
    source, present = _indexed_rows(low, command.input, command.indexes)
    _bind_rows(low, command.output, source, present, command.alpha, add=add, zero_absent=not add)


def _indexed_rows(low: Lowering, submatrix: int, indexes: int) -> tuple[Positions, Flags]:
    rows = low.computation.indexes[indexes].astype(np.int64)
    present = rows >= 0
    return low.arena.positions(np.full(len(rows), submatrix), np.where(present, rows, 0)), present


@binds(c.CopyRowsMulti)
def _copy_rows_multi(low: Lowering, command: c.CopyRowsMulti) -> None:
    low.flush_multi(command.indexes_multi)
    low.set(command.output)
    source, present = low.multi_positions(command.indexes_multi)
    _bind_rows(low, command.output, source, present, command.alpha, add=False, zero_absent=True)


@binds(c.AddRowsMulti)
def _add_rows_multi(low: Lowering, command: c.AddRowsMulti) -> None:
    low.flush_multi(command.indexes_multi)
    _, add = low.add_to(command.output)
    source, present = low.multi_positions(command.indexes_multi)
    _bind_rows(low, command.output, source, present, command.alpha, add=add, zero_absent=not add)


def _bind_to_rows(
    low: Lowering, command: c.CopyToRowsMulti | c.AddToRowsMulti, *, add: bool
) -> None:
    low.flush_multi(command.indexes_multi)
    columns = low.read(command.input).shape[1]
    target, present = low.multi_positions(command.indexes_multi)
    source = low.arena.row_positions(command.input)
    record_move(
        low.tape,
        low.arena,
        target[present],
        source[present],
        columns,
        command.alpha,
        add=add,
    )


@binds(c.CopyToRowsMulti)
def _copy_to_rows_multi(low: Lowering, command: c.CopyToRowsMulti) -> None:
    _bind_to_rows(low, command, add=False)


@binds(c.AddToRowsMulti)
def _add_to_rows_multi(low: Lowering, command: c.AddToRowsMulti) -> None:
    _bind_to_rows(low, command, add=True)


@binds(c.AddRowRanges)
def _add_row_ranges(low: Lowering, command: c.AddRowRanges) -> None:
    source = low.read(command.input)
    output, add = low.add_to(command.output)
    ranges = low.computation.indexes_ranges[command.indexes_ranges]
    if command.alpha == 1.0:
        record_row_range_sums(low.tape, source, ranges, output, add=add)
        return
    sums = low.tape.scratch(*output.shape)
    record_row_range_sums(low.tape, source, ranges, sums, add=False)
    record_scaled(low.tape, sums, command.alpha, output, add=add)


# ---- the world outside, and control ----


@binds(c.AcceptInput)
def _accept_input(low: Lowering, command: c.AcceptInput) -> None:
    low.zeros.forget(low.area(command.matrix)[0])
    low.accept(command.matrix, command.node)


@binds(c.ProvideOutput)
def _provide_output(low: Lowering, command: c.ProvideOutput) -> None:
    low.read(command.matrix)
    low.provide(command.matrix, command.node)


@binds(c.NoOperation)
def _no_operation(low: Lowering, command: c.NoOperation) -> None:
    """Nothing."""


@binds(c.NoOperationMarker)
def _marker(low: Lowering, command: c.NoOperationMarker) -> None:
    low.end_segment()


@binds(c.NoOperationLabel)
def _label(low: Lowering, command: c.NoOperationLabel) -> None:
    low.label()


@binds(c.GotoLabel)
def _goto(low: Lowering, command: c.GotoLabel) -> None:
    low.loop(command.label)
