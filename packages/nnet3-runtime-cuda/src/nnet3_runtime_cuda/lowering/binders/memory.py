"""Commands that give matrices memory, contents or another form."""

from __future__ import annotations

from nnet3_compiler import ComputationError
from nnet3_compiler import commands as c

from ..compression import CompressedForm
from ..hand_over import Move, origins, record_moves, swaps_from
from ..lowering import Lowering, binds


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
    matrix, values = low.area(command.matrix)[0], low.read(command.matrix)
    form = CompressedForm(command.compression_type, command.alpha)
    stored = low.arena.compressed(matrix, form.columns(values.shape[1]), form.dtype)
    form.record_compress(low.tape, values, stored, truncate=bool(command.truncate))
    low.compressed[matrix] = form, stored


@binds(c.DecompressMatrix)
def _decompress(low: Lowering, command: c.DecompressMatrix) -> None:
    matrix, _ = low.area(command.matrix)
    if matrix not in low.compressed:
        raise ComputationError(f"c{low.position}: DecompressMatrix: m{matrix} is not compressed")
    form, stored = low.compressed.pop(matrix)
    if form.keeps_packed_signs and low.next_takes_signs_of(command.matrix):
        low.signs = stored
        return
    form.record_decompress(low.tape, stored, low.arena.view(command.matrix))
