"""Commands that give matrices memory, contents or another form."""

from __future__ import annotations

from nnet3_computation import ComputationError
from nnet3_computation import commands as c

from nnet3_runtime_cuda.lowering.bind.binding import Binding, binds
from nnet3_runtime_cuda.lowering.bind.compression import CompressedForm
from nnet3_runtime_cuda.lowering.bind.hand_over import Move, origins, record_moves, swaps_from


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
    for destination, source in origins(swaps_from(commands, binding.position)).items():
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
