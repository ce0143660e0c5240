"""For each command class the function that records its calls; importing registers them all."""

from __future__ import annotations

import numpy as np
from nnet3_computation import ComputationError
from nnet3_computation import commands as c
from nnet3_descriptors.components import ComponentProperties

from nnet3_runtime_cuda.kernels import Backpropagation, Propagation, StatsStorage
from nnet3_runtime_cuda.kernels.rows import record_row_range_sums
from nnet3_runtime_cuda.lowering.bind.arena import Positions
from nnet3_runtime_cuda.lowering.bind.binding import Binding, Flags, binds
from nnet3_runtime_cuda.lowering.bind.compression import CompressedForm
from nnet3_runtime_cuda.lowering.bind.hand_over import Move, record_moves, swaps_from
from nnet3_runtime_cuda.lowering.bind.rows import record_fill, record_move, record_scaled
from nnet3_runtime_cuda.operations import Array


def _in_place(binding: Binding, submatrix: int) -> Array:
    """A view of a submatrix that the component reads and overwrites."""
    view = binding.read(submatrix)
    binding.note_written(binding.areas.of(submatrix))
    return view


@binds(c.Propagate)
def _propagate(binding: Binding, command: c.Propagate) -> None:
    properties = binding.properties(command.component)
    splice = binding.input_splice(command)
    x = binding.read(command.input) if command.input and splice is None else binding.arena.view(0)
    in_place = command.input == command.output
    if properties & ComponentProperties.PROPAGATE_ADDS and not in_place:
        y, add = binding.add_to(command.output)
    else:
        set_or_change = _in_place if in_place else Binding.set
        y, add = set_or_change(binding, command.output), False
    binding.nnet.kernel(command.component).propagate(
        Propagation(
            tape=binding.tape,
            x=x,
            y=y,
            add=add,
            indexes=binding.precomputed(command.precomputed_indexes),
            memo=binding.memo(command.memo),
            known=binding.steps.known_part(binding),
            panels=binding.steps.panels(binding),
            splice=splice,
        )
    )


@binds(c.StoreStats)
def _store_stats(binding: Binding, command: c.StoreStats) -> None:
    binding.nnet.kernel(command.component).store_stats(
        StatsStorage(
            tape=binding.tape, y=binding.read(command.output), memo=binding.memo(command.memo)
        )
    )


def _bind_backprop(
    binding: Binding, command: c.Backprop | c.BackpropNoModelUpdate, *, update: bool
) -> None:
    properties = binding.properties(command.component)
    splice, dx_splice = binding.input_splice(command), binding.derivative_splice()
    x, y, dy = (
        binding.read(submatrix) if submatrix else binding.arena.view(0)
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
        if properties & ComponentProperties.BACKPROP_ADDS and not in_place:
            dx, add = binding.add_to(command.input_deriv)
        else:
            set_or_change = _in_place if in_place else Binding.set
            dx = set_or_change(binding, command.input_deriv)
    signs, binding.signs = binding.signs, None
    kernel, first = binding.nnet.kernel(command.component), False
    if properties & ComponentProperties.UPDATABLE:
        update = update and binding.computation.need_model_derivative
        if update:
            first = kernel.sets_gradient and binding.num_updates(command.component) == 1
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
            indexes=binding.precomputed(command.precomputed_indexes),
            memo=binding.memo(command.memo),
            signs=signs,
            update=update,
            first=first,
            skipped=binding.steps.late_columns(binding),
            panels=binding.steps.panels(binding),
            splice=splice,
            dx_splice=dx_splice,
        )
    )
    binding.steps.record_late(binding)


@binds(c.Backprop)
def _backprop(binding: Binding, command: c.Backprop) -> None:
    _bind_backprop(binding, command, update=True)


@binds(c.BackpropNoModelUpdate)
def _backprop_no_model_update(binding: Binding, command: c.BackpropNoModelUpdate) -> None:
    _bind_backprop(binding, command, update=False)


@binds(c.MatrixCopy)
def _matrix_copy(binding: Binding, command: c.MatrixCopy) -> None:
    if binding.is_sum_of_blocks():
        return
    source = binding.read(command.input)
    record_scaled(binding.tape, source, command.alpha, binding.set(command.output), add=False)


@binds(c.MatrixAdd)
def _matrix_add(binding: Binding, command: c.MatrixAdd) -> None:
    if binding.is_sum_of_blocks():
        return
    source = binding.read(command.input)
    output, add = binding.add_to(command.output)
    record_scaled(binding.tape, source, command.alpha, output, add=add)


def _bind_rows(
    binding: Binding,
    output: int,
    source: Positions,
    present: Flags,
    alpha: float,
    *,
    add: bool,
    zero_absent: bool,
) -> None:
    """Records row i of `output` (+)= alpha times the row at source[i], where present[i]."""
    target = binding.arena.row_positions(output)
    columns = binding.areas.of(output).area.columns
    if zero_absent:
        record_fill(binding.tape, binding.arena, target[~present], columns, 0.0)
    record_move(
        binding.tape, binding.arena, target[present], source[present], columns, alpha, add=add
    )


@binds(c.CopyRows)
def _copy_rows(binding: Binding, command: c.CopyRows) -> None:
    binding.read(command.input)
    binding.set(command.output)
    source, present = _indexed_rows(binding, command.input, command.indexes)
    _bind_rows(binding, command.output, source, present, command.alpha, add=False, zero_absent=True)


@binds(c.AddRows)
def _add_rows(binding: Binding, command: c.AddRows) -> None:
    binding.read(command.input)
    _, add = binding.add_to(command.output)
    source, present = _indexed_rows(binding, command.input, command.indexes)
    _bind_rows(
        binding, command.output, source, present, command.alpha, add=add, zero_absent=not add
    )


def _indexed_rows(binding: Binding, submatrix: int, indexes: int) -> tuple[Positions, Flags]:
    rows = binding.computation.indexes[indexes].astype(np.int64)
    present = rows >= 0
    return binding.arena.positions(
        np.full(len(rows), submatrix), np.where(present, rows, 0)
    ), present


@binds(c.CopyRowsMulti)
def _copy_rows_multi(binding: Binding, command: c.CopyRowsMulti) -> None:
    binding.flush_multi(command.indexes_multi)
    binding.set(command.output)
    source, present = binding.multi_positions(command.indexes_multi)
    _bind_rows(binding, command.output, source, present, command.alpha, add=False, zero_absent=True)


@binds(c.AddRowsMulti)
def _add_rows_multi(binding: Binding, command: c.AddRowsMulti) -> None:
    binding.flush_multi(command.indexes_multi)
    _, add = binding.add_to(command.output)
    source, present = binding.multi_positions(command.indexes_multi)
    _bind_rows(
        binding, command.output, source, present, command.alpha, add=add, zero_absent=not add
    )


def _bind_to_rows(
    binding: Binding, command: c.CopyToRowsMulti | c.AddToRowsMulti, *, add: bool
) -> None:
    binding.flush_multi(command.indexes_multi)
    columns = binding.read(command.input).shape[1]
    target, present = binding.multi_positions(command.indexes_multi)
    source = binding.arena.row_positions(command.input)
    record_move(
        binding.tape,
        binding.arena,
        target[present],
        source[present],
        columns,
        command.alpha,
        add=add,
    )


@binds(c.CopyToRowsMulti)
def _copy_to_rows_multi(binding: Binding, command: c.CopyToRowsMulti) -> None:
    _bind_to_rows(binding, command, add=False)


@binds(c.AddToRowsMulti)
def _add_to_rows_multi(binding: Binding, command: c.AddToRowsMulti) -> None:
    _bind_to_rows(binding, command, add=True)


@binds(c.AddRowRanges)
def _add_row_ranges(binding: Binding, command: c.AddRowRanges) -> None:
    source = binding.read(command.input)
    output, add = binding.add_to(command.output)
    ranges = binding.computation.indexes_ranges[command.indexes_ranges]
    if command.alpha == 1.0:
        record_row_range_sums(binding.tape, source, ranges, output, add=add)
        return
    sums = binding.tape.scratch(*output.shape)
    record_row_range_sums(binding.tape, source, ranges, sums, add=False)
    record_scaled(binding.tape, sums, command.alpha, output, add=add)


@binds(c.AllocMatrixUndefined)
def _alloc_undefined(binding: Binding, command: c.AllocMatrixUndefined) -> None:
    place = binding.areas.of(command.matrix)
    binding.zeros.forget(place.matrix)
    if place.matrix in binding.read_whole:
        binding.zeros.note(*place)


@binds(c.AllocMatrixZeroed)
def _alloc_zeroed(binding: Binding, command: c.AllocMatrixZeroed) -> None:
    binding.zeros.note(*binding.areas.of(command.matrix))


@binds(c.DeallocMatrix)
def _dealloc(binding: Binding, command: c.DeallocMatrix) -> None:
    binding.zeros.forget(binding.areas.of(command.matrix)[0])


@binds(c.SwapMatrix)
def _swap(binding: Binding, command: c.SwapMatrix) -> None:
    """Moves the contents of the source to the destination."""
    commands = binding.commands
    if binding.position and isinstance(commands[binding.position - 1], c.SwapMatrix):
        return  # done together with the previous command
    moves = []
    for destination, source in c.origins(swaps_from(commands, binding.position)).items():
        from_matrix, area = binding.areas.of(source)
        to_matrix, _ = binding.areas.of(destination)
        if binding.arena.offset(from_matrix) == binding.arena.offset(to_matrix):
            pending = binding.zeros.touching(from_matrix, area)
            binding.zeros.forget(to_matrix)
            for zeros in pending:
                binding.zeros.note(to_matrix, zeros)
        else:
            binding.zeros.forget(to_matrix)
            moves.append(Move(binding.memory(source), binding.memory(destination)))
    record_moves(binding.tape, moves)


@binds(c.SetConst)
def _set_const(binding: Binding, command: c.SetConst) -> None:
    if command.alpha == 0.0:
        matrix, area = binding.areas.of(command.output)
        for pending in binding.zeros.touching(matrix, area):
            if not area.contains(pending):
                binding.write_zeros(matrix, pending)
        binding.zeros.note(matrix, area)
    else:
        binding.tape.fill(command.alpha, binding.set(command.output))


@binds(c.CompressMatrix)
def _compress(binding: Binding, command: c.CompressMatrix) -> None:
    matrix, values = binding.areas.of(command.matrix)[0], binding.read(command.matrix)
    form = CompressedForm(command.compression_type, command.alpha)
    stored = binding.arena.compressed(matrix, form.columns(values.shape[1]), form.dtype)
    form.record_compress(binding.tape, values, stored, truncate=bool(command.truncate))
    binding.compressed[matrix] = form, stored


@binds(c.DecompressMatrix)
def _decompress(binding: Binding, command: c.DecompressMatrix) -> None:
    matrix, _ = binding.areas.of(command.matrix)
    if matrix not in binding.compressed:
        raise ComputationError(
            f"c{binding.position}: DecompressMatrix: m{matrix} is not compressed"
        )
    form, stored = binding.compressed.pop(matrix)
    if form.keeps_packed_signs and binding.next_takes_signs_of(command.matrix):
        binding.signs = stored
        return
    form.record_decompress(binding.tape, stored, binding.arena.view(command.matrix))


@binds(c.AcceptInput)
def _accept_input(binding: Binding, command: c.AcceptInput) -> None:
    binding.zeros.forget(binding.areas.of(command.matrix)[0])
    binding.accept(command.matrix, command.node)


@binds(c.ProvideOutput)
def _provide_output(binding: Binding, command: c.ProvideOutput) -> None:
    binding.read(command.matrix)
    binding.provide(command.matrix, command.node)


@binds(c.NoOperation)
def _no_operation(binding: Binding, command: c.NoOperation) -> None:
    """Does nothing."""


@binds(c.NoOperationMarker)
def _marker(binding: Binding, command: c.NoOperationMarker) -> None:
    binding.end_segment()


@binds(c.NoOperationLabel)
def _label(binding: Binding, command: c.NoOperationLabel) -> None:
    binding.label()


@binds(c.GotoLabel)
def _goto(binding: Binding, command: c.GotoLabel) -> None:
    binding.loop(command.label)
