"""Lowering: each command of a computation becomes calls that are bound to their operands.

For each class of commands a function records the calls, on the state that `Binding` keeps.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from nnet3_computation import NnetComputation
from nnet3_computation import commands as c
from nnet3_computation.checks import check_runnable
from nnet3_descriptors.components import ComponentProperties

from nnet3_runtime_cuda.device import DeviceNnet
from nnet3_runtime_cuda.kernels import Backpropagation, Propagation
from nnet3_runtime_cuda.kernels.parameters import record_row_range_sums
from nnet3_runtime_cuda.lowering import arena
from nnet3_runtime_cuda.lowering.arena import Positions, record_scaled
from nnet3_runtime_cuda.lowering.binding import Binding, Flags
from nnet3_runtime_cuda.lowering.plan import Capabilities, plan_with
from nnet3_runtime_cuda.machine import Program
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.scratch import Workspace

if TYPE_CHECKING:
    from nnet3_runtime_cuda.tracing.tracer import Watch


_LOCK = threading.Lock()
_PAUSES: list[bool] = []
"""For each thread that wants no collections now, whether they went on before: only the first's."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Stops collections in the context, for the whole process: the objects made there will last.

    A program of thousands of sequences has millions of calls and operands. The collector would
    visit all objects again whenever their number has grown by a quarter, which took a third of the
    time.
    """
    with _LOCK:
        _PAUSES.append(gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _LOCK:
            was_enabled = _PAUSES.pop()
            if was_enabled and not _PAUSES:
                gc.enable()


def lower(
    nnet: DeviceNnet,
    computation: NnetComputation,
    *,
    is_alone: bool = False,
    watch: Watch | None = None,
    workspace: Workspace | None = None,
) -> Program:
    """Binds a computation to memory and to the kernels of a network.

    Args:
        nnet: The network.
        computation: The computation to lower.
        is_alone: Whether the program runs on one thread, though the network has more.
        watch: Times the calls of each command, on the processor.
        workspace: Memory that the program shares with others, on the processor.

    Raises:
        ComputationError: the computation cannot be run. It is a CheckError if a command is at
            fault, for example if the command does not fit the component or node that it names.
        UnsupportedComponentError: this package does not implement a component type.
        DeviceMemoryError: the device has too little memory; the message says what would fit.
    """
    check_runnable(nnet.nnet, computation)
    with nnet.lowering, uncollected(), np.errstate(all="ignore"):  # factors may overflow
        tape = nnet.machine.tape(nnet.dtype, is_alone=is_alone, workspace=workspace)
        plan = plan_with(nnet.nnet, computation, Capabilities(nnet, tape))
        binding = Binding(nnet, computation, plan, tape, watch)
        for position, command in enumerate(binding.commands):
            if binding.begin_command(position):
                _BINDERS[type(command)](binding, command)
                binding.end_command()
        return nnet.machine.bind(binding.program(), tape, computation)


# ---- what each command records ----


def _propagate(binding: Binding, command: c.Propagate) -> None:
    properties = binding.nnet.nnet.components[command.component].properties
    areas, splice = binding.areas, binding.input_splice(command)
    x = binding.read(areas[command.input if splice is None else 0])
    in_place = command.input == command.output
    adds = bool(properties & ComponentProperties.PROPAGATE_ADDS)
    y, add = _target(binding, command.output, add=adds, in_place=in_place)
    skipped, known = binding.known_part()
    binding.nnet.kernel(command.component).propagate(
        Propagation(
            tape=binding.tape,
            x=x,
            y=y,
            add=add,
            indexes=binding.computation.precomputed_indexes[command.precomputed_indexes],
            memo=binding.memo(command.memo),
            skipped=skipped,
            known=known,
            panels=binding.panels(),
            splice=splice,
        )
    )


def _store_stats(binding: Binding, command: c.StoreStats) -> None:
    y, memo = binding.read(binding.areas[command.output]), binding.memo(command.memo)
    binding.nnet.kernel(command.component).store_stats(binding.tape, y, memo)


def _backprop(
    binding: Binding, command: c.Backprop | c.BackpropNoModelUpdate, *, update: bool
) -> None:
    properties, areas = binding.nnet.nnet.components[command.component].properties, binding.areas
    splice, dx_splice = binding.input_splice(command), binding.derivative_splice()
    x, y, dy = (
        binding.read(areas[submatrix])
        for submatrix in (
            command.input_value if splice is None else 0,
            command.output_value,
            command.output_deriv,
        )
    )
    dx: Array | None = None
    add = False
    if command.input_deriv and dx_splice is None:
        in_place = command.input_deriv == command.output_deriv
        adds = bool(properties & ComponentProperties.BACKPROP_ADDS)
        dx, add = _target(binding, command.input_deriv, add=adds, in_place=in_place)
    signs, binding.signs = binding.signs, None
    kernel, first = binding.nnet.kernel(command.component), False
    if properties & ComponentProperties.UPDATABLE:
        update = update and binding.computation.need_model_derivative
        if update:
            first = kernel.sets_gradient and binding.num_updates[command.component] == 1
        if first:
            binding.replaced.add(command.component)
    kernel.backprop(
        Backpropagation(
            tape=binding.tape,
            x=x,
            y=y,
            dy=dy,
            dx=dx,
            add=add,
            indexes=binding.computation.precomputed_indexes[command.precomputed_indexes],
            memo=binding.memo(command.memo),
            signs=signs,
            update=update,
            first=first,
            skipped=binding.late_columns(),
            panels=binding.panels(),
            splice=splice,
            dx_splice=dx_splice,
        )
    )
    binding.record_late()


def _matrix(binding: Binding, command: c.MatrixCopy | c.MatrixAdd) -> None:
    if binding.is_sum_of_blocks():
        return
    source = binding.read(binding.areas[command.input])
    output, add = _target(binding, command.output, add=isinstance(command, c.MatrixAdd))
    record_scaled(binding.tape, source, command.alpha, output, add=add)


def _target(
    binding: Binding, submatrix: int, *, add: bool, in_place: bool = False
) -> tuple[Array, bool]:
    """The view of a submatrix to add to, or to set; and whether the command must add to it.

    If a command works in place, its output holds its input.
    """
    area = binding.areas[submatrix]
    if in_place:
        return binding.change(area), False
    return binding.add_to(area) if add else (binding.set(area), False)


def _rows(binding: Binding, command: c.CopyRows | c.AddRows) -> None:
    binding.read(binding.areas[command.input])
    rows = binding.computation.indexes[command.indexes].astype(np.int64)
    present = rows >= 0
    submatrices = np.full(len(rows), command.input)
    source = binding.arena.positions(submatrices, np.where(present, rows, 0))
    _gathered(binding, command, source, present, add=isinstance(command, c.AddRows))


def _rows_multi(binding: Binding, command: c.CopyRowsMulti | c.AddRowsMulti) -> None:
    binding.flush_multi(command.indexes_multi)
    source, present = binding.multi_positions(command.indexes_multi)
    _gathered(binding, command, source, present, add=isinstance(command, c.AddRowsMulti))


def _gathered(
    binding: Binding,
    command: c.CopyRows | c.AddRows | c.CopyRowsMulti | c.AddRowsMulti,
    source: Positions,
    present: Flags,
    *,
    add: bool,
) -> None:
    """Records row i of the output (+)= alpha times the row at source[i], where present[i]."""
    _, add = _target(binding, command.output, add=add)
    tape, memory = binding.tape, binding.arena
    target = memory.row_positions(command.output)
    columns = binding.areas[command.output].columns
    if not add:
        arena.record_fill(tape, memory, target[~present], columns, 0.0)
    to, origin = target[present], source[present]
    arena.record_move(tape, memory, to, origin, columns, command.alpha, add=add)


def _to_rows(binding: Binding, command: c.CopyToRowsMulti | c.AddToRowsMulti) -> None:
    binding.flush_multi(command.indexes_multi)
    columns = binding.read(binding.areas[command.input]).shape[1]
    target, present = binding.multi_positions(command.indexes_multi)
    source = binding.arena.row_positions(command.input)
    to, origin, add = target[present], source[present], isinstance(command, c.AddToRowsMulti)
    arena.record_move(binding.tape, binding.arena, to, origin, columns, command.alpha, add=add)


def _add_row_ranges(binding: Binding, command: c.AddRowRanges) -> None:
    source = binding.read(binding.areas[command.input])
    output, add = binding.add_to(binding.areas[command.output])
    ranges = binding.computation.indexes_ranges[command.indexes_ranges]
    if command.alpha == 1.0:
        record_row_range_sums(binding.tape, source, ranges, output, add=add)
        return
    sums = binding.tape.scratch(*output.shape)
    record_row_range_sums(binding.tape, source, ranges, sums, add=False)
    record_scaled(binding.tape, sums, command.alpha, output, add=add)


def _alloc_undefined(binding: Binding, command: c.AllocMatrixUndefined) -> None:
    area = binding.areas[command.matrix]
    binding.zeros.forget(area.matrix)
    if area.matrix in binding.read_whole:
        binding.zeros.note(area)


def _alloc_zeroed(binding: Binding, command: c.AllocMatrixZeroed) -> None:
    binding.zeros.note(binding.areas[command.matrix])


def _dealloc(binding: Binding, command: c.DeallocMatrix) -> None:
    binding.zeros.forget(binding.areas[command.matrix].matrix)


def _swap(binding: Binding, command: c.SwapMatrix) -> None:
    """Moves the contents of the source to the destination; of several commands as if at once."""
    commands, position = binding.commands, binding.position
    if position and isinstance(commands[position - 1], c.SwapMatrix):
        return  # done together with the previous command
    swaps, moved = [], []
    for each in commands[position:]:
        if not isinstance(each, c.SwapMatrix):
            break
        swaps.append(each)
    for destination, source in c.origins(swaps).items():
        area, to = binding.areas[source], binding.areas[destination]
        if binding.arena.offset(area.matrix) == binding.arena.offset(to.matrix):
            pending = binding.zeros.touching(area)
            binding.zeros.forget(to.matrix)
            for zeros in pending:
                binding.zeros.note(zeros._replace(matrix=to.matrix))
        else:
            binding.zeros.forget(to.matrix)
            moved.append((binding.memory(area), binding.memory(to)))
    arena.record_moves(binding.tape, moved)


def _set_const(binding: Binding, command: c.SetConst) -> None:
    if command.alpha == 0.0:
        area = binding.areas[command.output]
        for pending in binding.zeros.touching(area):
            if not area.contains(pending):
                binding.write_zeros(pending)
        binding.zeros.note(area)
    else:
        binding.tape.fill(command.alpha, binding.set(binding.areas[command.output]))


def _compress(binding: Binding, command: c.CompressMatrix) -> None:
    area = binding.areas[command.matrix]
    values = binding.read(area)
    kind, limit = command.compression_type, command.alpha
    stored = binding.arena.compressed(area.matrix, *arena.stored_as(kind, values.shape[1]))
    arena.record_compress(
        binding.tape, kind, limit, values, stored, truncate=bool(command.truncate)
    )
    binding.compressed[area.matrix] = kind, limit, stored


def _decompress(binding: Binding, command: c.DecompressMatrix) -> None:
    area = binding.areas[command.matrix]
    kind, limit, stored = binding.compressed.pop(area.matrix)
    if kind == arena.ONE_BIT and binding.next_takes_signs_of(command.matrix):
        binding.signs = stored
        return
    values = binding.arena.view(area)
    arena.record_decompress(binding.tape, kind, limit, stored, values)


def _accept_input(binding: Binding, command: c.AcceptInput) -> None:
    area = binding.areas[command.matrix]
    binding.zeros.forget(area.matrix)
    binding.accept(area, command.node)


def _provide_output(binding: Binding, command: c.ProvideOutput) -> None:
    binding.provide(binding.areas[command.matrix], command.node)


_BINDERS: dict[type[c.Command], Callable[[Binding, Any], None]] = {
    c.AcceptInput: _accept_input,
    c.AddRowRanges: _add_row_ranges,
    c.AddRows: _rows,
    c.AddRowsMulti: _rows_multi,
    c.AddToRowsMulti: _to_rows,
    c.AllocMatrixUndefined: _alloc_undefined,
    c.AllocMatrixZeroed: _alloc_zeroed,
    c.Backprop: partial(_backprop, update=True),
    c.BackpropNoModelUpdate: partial(_backprop, update=False),
    c.CompressMatrix: _compress,
    c.CopyRows: _rows,
    c.CopyRowsMulti: _rows_multi,
    c.CopyToRowsMulti: _to_rows,
    c.DeallocMatrix: _dealloc,
    c.DecompressMatrix: _decompress,
    c.GotoLabel: lambda binding, command: binding.loop(command.label),
    c.MatrixAdd: _matrix,
    c.MatrixCopy: _matrix,
    c.NoOperation: lambda *_: None,
    c.NoOperationLabel: lambda binding, _: binding.label(),
    c.NoOperationMarker: lambda binding, _: binding.end_segment(),
    c.Propagate: _propagate,
    c.ProvideOutput: _provide_output,
    c.SetConst: _set_const,
    c.StoreStats: _store_stats,
    c.SwapMatrix: _swap,
}
