"""The blocks of memory that matrices hold at each moment of a computation."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_computation import commands, errors
from nnet3_computation.analysis.accesses import CommandKinds
from nnet3_computation.analysis.layout import MATRIX
from nnet3_computation.computation import NnetComputation

Bytes = npt.NDArray[np.int64]
"""Numbers of bytes, int64."""

FLOAT_BYTES = 4
"""The bytes of an element of a matrix that is not compressed."""
NO_BLOCK = -1
_OPERAND = commands.FIRST_OPERAND_COLUMN
_TAKING = CommandKinds.of(
    commands.AllocMatrixUndefined, commands.AllocMatrixZeroed, commands.AcceptInput
)
_PACKING = CommandKinds.of(commands.CompressMatrix, commands.DecompressMatrix)
_OF_MEMORY = CommandKinds(
    _TAKING.has | _PACKING.has | CommandKinds.of(commands.DeallocMatrix, commands.SwapMatrix).has
)


Ints = npt.NDArray[np.int64]

NEARLY_A_PEAK = 0.97
"""Bytes above this part of the lower bound count as the peak."""


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Blocks:
    """Blocks of memory, each needed during one or several half-open spans of time.

    Attributes:
        sizes: (B,) int64 bytes, positive.
        block: (P,) int64, the block of each span.
        begin: (P,) int64, the time from which block[p] is needed.
        end: (P,) int64, the time up to which it is needed (not included). A block lies at one
            offset in all its spans.
    """

    sizes: Ints
    block: Ints
    begin: Ints
    end: Ints

    @cached_property
    def _events(self) -> tuple[Ints, Ints]:
        """Begins and ends of spans in order, as span and ~span, and their times.

        At one time the ends come before the begins.
        """
        number = len(self.block)
        bits = number.bit_length()
        spans = np.arange(number)
        # Sorting numbers that hold time and span together is faster than sorting indirectly.
        ends, begins = self.end << bits + 1, (self.begin << bits + 1) + (1 << bits)
        keys = np.concatenate([ends + spans, begins + spans])
        keys.sort()
        is_begin = keys >> bits & 1
        return (keys & (1 << bits) - 1) ^ is_begin - 1, keys >> bits + 1

    @property
    def events_around_peak(self) -> tuple[Ints, Ints]:
        """The begins and ends after the peak, and the ones before it, going back from the peak.

        Both are int64: a block if it is needed from then on, in this direction, and ~block if it is
        no longer needed.
        """
        events, times = self._events
        blocks = np.concatenate([self.block, ~self.block[::-1]])[events]
        first = np.searchsorted(times, self.peak, side="right")
        return blocks[first:], ~blocks[:first][::-1]

    @cached_property
    def moments(self) -> tuple[Ints, Ints]:
        """The times of begins and ends, and the bytes that are needed from then on; (T,) int64."""
        events, times = self._events
        sizes = self.sizes[self.block]
        load = np.cumsum(np.concatenate([sizes, -sizes[::-1]])[events])
        is_last = np.ones(len(times), dtype=np.bool_)
        np.not_equal(times[1:], times[:-1], out=is_last[:-1])
        return times[is_last], load[is_last]

    def arena_bytes(self, offsets: Ints) -> int:
        """Returns the bytes of the arena that holds all blocks at offsets, (B,) int64."""
        return int((offsets + self.sizes).max(initial=0))

    @cached_property
    def lower_bound(self) -> int:
        """The largest sum of the sizes of blocks that are needed at the same time, in bytes."""
        return int(self.moments[1].max(initial=0))

    @cached_property
    def peak(self) -> int:
        """The first time at which the peak is reached."""
        times, load = self.moments
        return int(times[load.argmax()])

    @property
    def stack(self) -> Ints:
        """(S,) int64, the spans that include the peak, in the order in which they are stacked.

        The spans that end last come first. But spans that began when nearly as many bytes were
        needed come after all others, so that the memory that is free before they begin is in one
        piece, too.
        """
        times, load = self.moments
        near = times[(load >= NEARLY_A_PEAK * self.lower_bound).argmax()]
        (spans,) = ((self.begin <= self.peak) & (self.end > self.peak)).nonzero()
        begin = self.begin[spans]
        stack: Ints = spans[np.lexsort((begin, -self.end[spans], begin > near))]
        return stack

    @cached_property
    def spans_of_several(self) -> Ints:
        """(Q,) int64, the spans of blocks that have more than one, by block and begin."""
        counts = np.bincount(self.block)
        spans = np.flatnonzero((counts > 1)[self.block])
        return spans[np.lexsort((self.begin[spans], self.block[spans]))]


class Holdings(NamedTuple):
    """The blocks of memory that matrices hold, and when.

    A matrix has one block for its elements, and a second one for its compressed form if it is
    compressed meanwhile. A matrix that takes over the memory of another shares its block.

    Attributes:
        blocks: The blocks; times are positions of commands. A block is held up to the command that
            gives it back, or that follows the one that changes its form, or to the end.
        matrix_block: (M,) int64, the block of the elements of each matrix; -1 for none.
        compressed_block: (M,) int64, the block of its compressed form; -1 for none.
    """

    blocks: Blocks
    matrix_block: Bytes
    compressed_block: Bytes


def matrix_bytes(matrices: commands.Table) -> Bytes:
    """Returns the size of each matrix, (M,) int64."""
    sizes: Bytes = matrices.astype(np.int64).prod(axis=1) * FLOAT_BYTES
    return sizes


def compressed_bytes(matrix: npt.NDArray[np.integer], compression_type: int) -> int:
    """Returns the size of a compressed matrix, given (rows, cols); rows are whole bytes.

    Raises:
        ComputationError: There is no such type of compression.
    """
    rows, cols = matrix.tolist()
    if compression_type not in commands.COMPRESSED_BITS:
        raise errors.ComputationError(
            f"compression_type = {compression_type}, expected one of "
            f"{', '.join(map(str, commands.COMPRESSED_BITS))}"
        )
    size: int = rows * -(-cols * commands.COMPRESSED_BITS[compression_type] // 8)
    return size


def live_bytes(computation: NnetComputation) -> Bytes:
    """Returns the bytes that matrices hold after each command, (C,) int64.

    Inputs count from the moment they are accepted; a compressed matrix counts at its compressed
    size. Neither the parameters of the network nor scratch memory of components is counted.

    Raises:
        ComputationError: A command decompresses a matrix that is not compressed.
    """
    table, matrices = computation.command_table, computation.matrices
    opcodes, matrix_of = table[:, commands.OPCODE_COLUMN], computation.submatrices[:, MATRIX]
    change = np.zeros(len(table), dtype=np.int64)
    sizes = matrix_bytes(matrices)[matrix_of]
    takes, gives = _TAKING.among(opcodes), opcodes == commands.DeallocMatrix.OPCODE
    change[takes] = sizes[table[takes, _OPERAND]]
    change[gives] = -sizes[table[gives, _OPERAND]]
    compressed: dict[int, int] = {}
    for command in _PACKING.positions(opcodes).tolist():
        submatrix, compression_type = table[command, _OPERAND : _OPERAND + 2].tolist()
        matrix = int(matrix_of[submatrix])
        if opcodes[command] == commands.CompressMatrix.OPCODE:
            compressed[matrix] = compressed_bytes(matrices[matrix], compression_type)
            change[command] = compressed[matrix] - sizes[submatrix]
        elif matrix in compressed:
            change[command] = sizes[submatrix] - compressed.pop(matrix)
        else:
            raise errors.ComputationError(
                f"command c{command}: expected matrix m{matrix} to be compressed, found it is not"
            )
    return np.cumsum(change)


def peak_bytes(computation: NnetComputation) -> int:
    """Returns the largest number of bytes that matrices hold at one time.

    Raises:
        ComputationError: As by `live_bytes`.
    """
    return int(live_bytes(computation).max(initial=0))


def holdings(computation: NnetComputation) -> Holdings:
    """Returns the blocks of memory that the matrices of a computation hold, and when.

    In a loop (a computation that ends with GotoLabel) the last SwapMatrix commands hand matrices on
    to the next round; these keep separate blocks up to the end.

    Raises:
        ComputationError: A command frees, swaps or compresses a matrix that is not allocated.
    """
    table = computation.command_table
    at = _OF_MEMORY.positions(table[:, commands.OPCODE_COLUMN])
    loop_swaps = commands.hand_over_commands(table)
    if len(loop_swaps):
        at = at[(at < loop_swaps.start) | (at >= loop_swaps.stop)]
    matrix_of, number = computation.submatrices[:, MATRIX], len(computation.matrices)
    opcode, matrix = table[at, commands.OPCODE_COLUMN], matrix_of[table[at, _OPERAND]]
    takes, gives = _TAKING.among(opcode), opcode == commands.DeallocMatrix.OPCODE

    # Nearly all matrices are only allocated once and freed at most once.
    is_plain = np.bincount(matrix[takes], minlength=number) == 1
    is_plain &= np.bincount(matrix[gives], minlength=number) <= 1
    is_plain[matrix[~takes & ~gives]] = False
    is_plain[matrix_of[table[at[opcode == commands.SwapMatrix.OPCODE], _OPERAND + 1]]] = False
    sizes = matrix_bytes(computation.matrices)
    rest = np.flatnonzero(~is_plain[matrix])
    columns = (at[rest], opcode[rest], matrix[rest], table[at[rest], _OPERAND + 1])
    events = zip(*(each.tolist() for each in columns), strict=True)
    block_sizes, spans, of_matrices, of_compressed = _followed(computation, sizes, events)
    block, begin, end = np.array(spans, dtype=np.int64).reshape(-1, 3).T

    takes &= is_plain[matrix]
    gives &= is_plain[matrix]
    plain, first = matrix[takes], len(block_sizes)
    numbers = np.arange(first, first + len(plain))
    last = np.full(number, len(table), dtype=np.int64)
    last[matrix[gives]] = at[gives]
    matrix_block, compressed_block = np.full((2, number), NO_BLOCK, dtype=np.int64)
    matrix_block[list(of_matrices)] = list(of_matrices.values())
    compressed_block[list(of_compressed)] = list(of_compressed.values())
    matrix_block[plain] = numbers
    return Holdings(
        blocks=Blocks(
            sizes=np.concatenate([np.array(block_sizes, np.int64), sizes[plain]]),
            block=np.concatenate([block, numbers]),
            begin=np.concatenate([begin, at[takes]]),
            end=np.concatenate([end, last[plain]]),
        ),
        matrix_block=matrix_block,
        compressed_block=compressed_block,
    )


def _followed(
    computation: NnetComputation, matrix_sizes: Bytes, events: Iterable[tuple[int, int, int, int]]
) -> tuple[list[int], list[tuple[int, int, int]], dict[int, int], dict[int, int]]:
    """Follows commands that take and give back memory.

    Args:
        computation: The computation.
        matrix_sizes: (M,) the size of each matrix.
        events: Position, opcode, matrix and second operand of each command.

    Returns:
        The size of each block; block, begin and end of each span of time; and by matrix the blocks
        of its elements and of its compressed form.
    """
    matrices, submatrices = computation.matrices, computation.submatrices
    sizes: list[int] = []
    spans: list[tuple[int, int, int]] = []
    held: dict[int, tuple[int, int]] = {}
    matrix_block: dict[int, int] = {}
    compressed_block: dict[int, int] = {}

    def take(blocks: dict[int, int], matrix: int, size: int, at: int) -> None:
        if matrix not in blocks:
            blocks[matrix] = len(sizes)
            sizes.append(size)
        held[matrix] = blocks[matrix], at

    def release(matrix: int, at: int) -> tuple[int, int]:
        if matrix not in held:
            raise errors.ComputationError(
                f"command c{at}: expected matrix m{matrix} to be there, found it has no memory"
            )
        return held.pop(matrix)

    for at, opcode, matrix, second in events:
        if _TAKING.has[opcode]:
            if matrix not in held:
                take(matrix_block, matrix, int(matrix_sizes[matrix]), at)
        elif opcode == commands.SwapMatrix.OPCODE:
            source = int(submatrices[second, MATRIX])
            held[matrix] = release(source, at)
            matrix_block[matrix] = matrix_block[source]
        elif opcode == commands.DeallocMatrix.OPCODE:
            spans.append((*release(matrix, at), at))
        else:
            # During the command both forms are there.
            spans.append((*release(matrix, at), at + 1))
            if opcode == commands.CompressMatrix.OPCODE:
                take(compressed_block, matrix, compressed_bytes(matrices[matrix], second), at)
            else:
                take(matrix_block, matrix, int(matrix_sizes[matrix]), at)
    end = len(computation.command_table)
    spans += [(*each, end) for each in held.values()]
    return sizes, spans, matrix_block, compressed_block
