"""Pass: statistics over time are extracted and pooled for some sequences at a time."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import attrs
import numpy as np
from nnet3_compiler.commands import (
    AllocMatrixZeroed,
    Backprop,
    BackpropNoModelUpdate,
    DeallocMatrix,
    MatrixCopy,
    NoOperationMarker,
    Propagate,
)
from nnet3_compiler.debug_info import MatrixDebugInfo
from nnet3_compiler.declaration import (
    ALPHA_COLUMN,
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    TABLE_WIDTH,
    Command,
    alpha_bits,
)
from nnet3_compiler.emission import command_rows
from nnet3_descriptors.components import (
    StatisticsExtractionPrecomputedIndexes,
    StatisticsPoolingPrecomputedIndexes,
)
from nnet3_optimizer.analysis.csr import Ids
from nnet3_optimizer.analysis.uses import Uses
from nnet3_optimizer.analysis.variables import MATRIX, NUM_COLS, NUM_ROWS, ROW_OFFSET, Table
from nnet3_optimizer.debug_info import rows_of
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.loops import is_in_segments
from nnet3_optimizer.memory.live import FLOAT_BYTES
from nnet3_optimizer.operands import columns
from nnet3_optimizer.passes.unused_matrices import without_unused_matrices
from nnet3_optimizer.program import Program

MOST_PARTS = 8
LEAST_BYTES = 1 << 20
"""Statistics are not split into parts smaller than this."""

_OUTPUT, _INPUT = FIRST_OPERAND_COLUMN, FIRST_OPERAND_COLUMN + 1
_ONE = alpha_bits(1.0)
_Backward = Backprop | BackpropNoModelUpdate
_BACKWARD: dict[int, type[_Backward]] = {
    each.OPCODE: each for each in (Backprop, BackpropNoModelUpdate)
}


def split_statistics(program: Program, least_bytes: int = LEAST_BYTES) -> Program:
    """Extracts statistics from some sequences, pools them, and goes on to the next sequences.

    Extracted statistics have more than twice as many columns as what they are of, and one row for
    each frame, but are only there to be summed up. In the backward part they are extracted again,
    sequences by sequences, and their derivatives go straight on to the frames.

    1. A StatisticsExtraction feeds a StatisticsPooling and nothing else, directly or as a copy;
       their derivatives likewise. What is extracted from does not change in between.
    2. Both have the rows of a sequence next to each other, so that each output row is made of a
       range of rows. Cuts are where no range reaches across, and at least every row belongs to a
       part. A row of either component depends on its own range alone, so results are the same, bit
       for bit.
    3. Parts have at least 1 MiB of statistics, and there are no more than eight.

    Before::

        m1 = frames
        m2 = statistics
        m3 = pooled
        m1 = accept input
        m2 = zeros
        m2 = extract.propagate(m1, precomputed p1)
        m3 = undefined
        m3 = pool.propagate(m2, precomputed p2)
        free m2

    After::

        m4 = zeros
        m4 = extract.propagate(m1(0:299, :), precomputed p3)
        m3 = undefined
        m3(0:0, :) = pool.propagate(m4, precomputed p4)
        free m4
        m5 = zeros
        m5 = extract.propagate(m1(300:599, :), precomputed p5)
        m3(1:1, :) = pool.propagate(m5, precomputed p6)
        free m5
    """
    pools = _pools(program)
    if not len(pools) or is_in_segments(program.table):
        return program
    uses = program.analysis.uses
    edit = Edit(program)
    found = False
    for command in pools.tolist():
        chain = _Finder(program, uses).chain(command)
        parts = _parts(program, chain, least_bytes) if chain is not None else []
        if chain is not None and len(parts) > 1:
            _Splitting(program, edit, chain, parts).split()
            found = True
    return without_unused_matrices(edit.program()) if found else program


def _pools(program: Program) -> Ids:
    """Returns the commands that pool statistics."""
    at = program.positions(Propagate.OPCODE)
    types = np.array(
        [c.type == "StatisticsPoolingComponent" for c in program.nnet.components], dtype=np.bool_
    )
    pools: Ids = at[types[program.table[at, FIRST_OPERAND_COLUMN]]]
    return pools


@attrs.frozen(kw_only=True)
class _Chain:
    """An extraction and a pooling, forward and perhaps backward.

    Attributes:
        extract, pool: The Propagate commands.
        extract_at, pool_at: Their positions.
        extract_back, pool_back: The Backprop commands, None without derivative.
        extract_back_at, pool_back_at: Their positions.
        copies: The positions of the copies between them.
    """

    extract: Propagate
    pool: Propagate
    extract_at: int
    pool_at: int
    extract_back: _Backward | None = None
    pool_back: _Backward | None = None
    extract_back_at: int = 0
    pool_back_at: int = 0
    copies: tuple[int, ...] = ()


class _Finder:
    """Looks for what rule 1 asks for."""

    def __init__(self, program: Program, uses: Uses) -> None:
        self.program = program
        self.uses = uses
        self.markers = program.positions(NoOperationMarker.OPCODE)

    def chain(self, pool_at: int) -> _Chain | None:
        """Returns the chain that ends with a pooling, or None."""
        pool = Propagate.from_row(self._row(pool_at))
        copies: list[int] = []
        given = self._matrix(pool.input)
        made = self.uses.users_of(given, writing=True)
        readers = [set(self.uses.users_of(given, writing=False))]
        if len(made) == 1 and self._copies_whole(made[0]):
            copies.append(made[0])
            given = self._matrix(self._row(made[0])[_INPUT])
            made = self.uses.users_of(given, writing=True)
            readers.append(set(self.uses.users_of(given, writing=False)))
        if len(made) != 1 or self._row(made[0])[OPCODE_COLUMN] != Propagate.OPCODE:
            return None
        extract = Propagate.from_row(self._row(made[0]))
        component = self.program.nnet.components[extract.component]
        whole = (pool.input, pool.output, extract.input, extract.output)
        if component.type != "StatisticsExtractionComponent" or not self.program.layout.are_whole(
            *whole
        ):
            return None
        forward = _Chain(
            extract=extract,
            pool=pool,
            extract_at=made[0],
            pool_at=pool_at,
            copies=tuple(copies),
        )
        if not self._is_written_once(pool.output, pool_at):
            return None
        backward = set.union(*readers) - {pool_at, *copies}
        if not backward:
            return forward
        return self._with_backward(forward, backward) if len(backward) == 1 else None

    def _with_backward(self, chain: _Chain, readers: set[int]) -> _Chain | None:
        """Adds the backward commands; None if rule 1 fails."""
        (pool_back_at,) = readers
        row = self._row(pool_back_at)
        if row[OPCODE_COLUMN] not in _BACKWARD or row[_OUTPUT] != chain.pool.component:
            return None
        pool_back = _BACKWARD[row[OPCODE_COLUMN]].from_row(row)
        deriv, copies = self._matrix(pool_back.input_deriv), list(chain.copies)
        used = self.uses.users_of(deriv, writing=False)
        if not deriv or not self._is_written_once(pool_back.input_deriv, pool_back_at):
            return None
        if len(used) == 1 and self._copies_whole(used[0]):
            copies.append(used[0])
            copied = self._row(used[0])[_OUTPUT]
            if not self._is_written_once(copied, used[0]):
                return None
            used = self.uses.users_of(self._matrix(copied), writing=False)
        if len(used) != 1 or self._row(used[0])[OPCODE_COLUMN] not in _BACKWARD:
            return None
        row = self._row(used[0])
        extract_back = _BACKWARD[row[OPCODE_COLUMN]].from_row(row)
        same_frames = self._matrix(extract_back.input_value) in (
            0,
            self._matrix(chain.extract.input),
        )
        unchanged = self.uses.is_unchanged(chain.extract.input, chain.extract_at, used[0])
        named = (
            *(pool_back.output_deriv, pool_back.input_deriv),
            *(extract_back.output_deriv, extract_back.input_deriv),
            *(each for each in (pool_back.input_value, pool_back.output_value) if each),
        )
        fits = [
            extract_back.component == chain.extract.component,
            extract_back.input_deriv > 0 and self.program.layout.are_whole(*named),
            same_frames and unchanged,
            pool_back.precomputed_indexes == chain.pool.precomputed_indexes,
            extract_back.precomputed_indexes == chain.extract.precomputed_indexes,
            self._is_written_once(extract_back.input_deriv, used[0]),
        ]
        if not all(fits):
            return None
        return attrs.evolve(
            chain,
            pool_back=pool_back,
            extract_back=extract_back,
            pool_back_at=pool_back_at,
            extract_back_at=used[0],
            copies=tuple(copies),
        )

    def _row(self, command: int) -> list[int]:
        row: list[int] = self.program.table[command].tolist()
        return row

    def _matrix(self, submatrix: int) -> int:
        return self.uses.parts[submatrix].matrix

    def _is_written_once(self, submatrix: int, command: int) -> bool:
        return self.uses.users_of(self._matrix(submatrix), writing=True) == [command]

    def _copies_whole(self, command: int) -> bool:
        row = self._row(command)
        return (
            row[OPCODE_COLUMN] == MatrixCopy.OPCODE
            and row[ALPHA_COLUMN] == _ONE
            and self.program.layout.are_whole(row[_OUTPUT], row[_INPUT])
        )


class _Part(NamedTuple):
    """Rows that belong together: of the frames, of their statistics, of what is pooled."""

    frames: slice
    statistics: slice
    pooled: slice


_FRAMES, _, _POOLED = range(3)
"""Positions in a `_Part`."""


def _parts(program: Program, chain: _Chain, least_bytes: int) -> list[_Part]:
    """Returns the parts; fewer than two if it is not worth it or rule 2 fails."""
    pool: Any = program.precomputed_indexes[chain.pool.precomputed_indexes]
    extract: Any = program.precomputed_indexes[chain.extract.precomputed_indexes]
    if not isinstance(pool, StatisticsPoolingPrecomputedIndexes) or not isinstance(
        extract, StatisticsExtractionPrecomputedIndexes
    ):
        return []
    rows, cols = program.matrices[program.submatrices[chain.extract.output, 0]].tolist()
    frames = int(program.matrices[program.submatrices[chain.extract.input, 0], 0])
    begin, end = pool.forward_indexes.T.astype(np.int64)
    reach = np.maximum.accumulate(end)
    ahead = np.minimum.accumulate(begin[::-1])[::-1]
    # A cut before row i of the output: all ranges before end where those from i on begin.
    cuts = np.flatnonzero(reach[:-1] == ahead[1:]) + 1
    first, last = extract.forward_indexes.T
    in_order = bool((first[1:] == last[:-1]).all())
    covered = in_order and first[0] == 0 and last[-1] == frames and (begin >= 0).all()
    if not covered or int(ahead[0]) != 0 or int(reach[-1]) != rows:
        return []
    count = min(MOST_PARTS, len(cuts) + 1, rows * cols * FLOAT_BYTES // least_bytes)
    if count < 2:
        return []
    wanted = np.linspace(0, len(cuts) + 1, count + 1).astype(np.int64)[1:-1] - 1
    borders = [0, *cuts[wanted].tolist(), len(begin)]
    parts = []
    for a, b in itertools.pairwise(borders):
        low, high = int(ahead[a]), int(reach[b - 1])
        parts.append(
            _Part(slice(int(first[low]), int(last[high - 1])), slice(low, high), slice(a, b))
        )
    return parts


class _Splitting:
    """Puts commands for parts in the place of those for all."""

    def __init__(self, program: Program, edit: Edit, chain: _Chain, parts: list[_Part]) -> None:
        self.program = program
        self.edit = edit
        self.chain = chain
        self.parts = parts
        self._statistics, self._derivs, self._again = self._matrices()
        self._extracting, self._pooling = self._precomputed()

    def split(self) -> None:
        """Replaces the chain."""
        chain = self.chain
        at = [chain.extract_at, chain.pool_at, *chain.copies]
        if chain.pool_back is not None:
            at += [chain.pool_back_at, chain.extract_back_at]
        self.edit.delete(at)
        self._forward()
        if chain.pool_back is not None and chain.extract_back is not None:
            self._backward(chain.pool_back, chain.extract_back)

    def _matrices(self) -> tuple[Ids, Ids, Ids]:
        """Adds matrices for the statistics of each part, their derivatives, and once more for them.

        Returns:
            The submatrices that cover them, (parts,) each; empty without backward part.
        """
        chain = self.chain
        likes = [chain.extract.output]
        if chain.pool_back is not None:
            likes.append(chain.pool_back.input_deriv)
            if chain.pool_back.input_value:
                likes.append(chain.extract.output)
        whole = [self.program.submatrices[like].tolist() for like in likes]
        infos: list[MatrixDebugInfo | None] = [None] * (len(likes) * len(self.parts))
        if self.program.debug_info:
            known = [self.program.debug_info[each[MATRIX]] for each in whole]
            infos = [
                rows_of(info, part.statistics.start, part.statistics.stop)
                for part in self.parts
                for info in known
            ]
        sizes = [
            (part.statistics.stop - part.statistics.start, each[NUM_COLS])
            for part in self.parts
            for each in whole
        ]
        _, added = self.edit.matrices(sizes, infos)
        columns_of_parts = list(added.reshape(len(self.parts), len(likes)).T)
        nothing = added[:0]
        statistics, derivs, again = [*columns_of_parts, nothing, nothing][:3]
        return statistics, derivs, again

    def _precomputed(self) -> tuple[Ids, Ids]:
        """Adds the indexes of each part for extraction and for pooling, (parts,) each."""
        numbers = [
            (
                self.edit.precomputed(self._extraction_indexes(part)),
                self.edit.precomputed(self._pooling_indexes(part)),
            )
            for part in self.parts
        ]
        extracting, pooling = np.array(numbers, dtype=np.int64).T
        return extracting, pooling

    def _forward(self) -> None:
        """Extracts and pools part by part."""
        chain = self.chain
        pool = self._like(
            chain.pool_at,
            Propagate,
            input=self._statistics,
            output=self._rows(chain.pool.output, _POOLED),
            precomputed_indexes=self._pooling,
        )
        extract = self._extract(self._statistics)
        free = self._sizing(DeallocMatrix, self._statistics)
        allocate = self._sizing(AllocMatrixZeroed, self._statistics)
        self._insert(chain.pool_at, [allocate, extract, pool, free])

    def _backward(self, pool_back: _Backward, extract_back: _Backward) -> None:
        """Extracts again where need be, and takes derivatives from pooled rows to frames."""
        chain, is_again = self.chain, bool(pool_back.input_value)
        commands = []
        if is_again:
            allocate = self._sizing(AllocMatrixZeroed, self._again)
            commands += [allocate, self._extract(self._again)]
        back = self._like(
            chain.pool_back_at,
            Backprop,
            precomputed_indexes=self._pooling,
            output_value=self._rows(pool_back.output_value, _POOLED),
            output_deriv=self._rows(pool_back.output_deriv, _POOLED),
            input_deriv=self._derivs,
            input_value=self._again if is_again else 0,
        )
        commands += [self._sizing(AllocMatrixZeroed, self._derivs), back]
        if is_again:
            commands.append(self._sizing(DeallocMatrix, self._again))
        back = self._like(
            chain.extract_back_at,
            Backprop,
            precomputed_indexes=self._extracting,
            input_value=self._rows(extract_back.input_value, _FRAMES),
            output_deriv=self._derivs,
            input_deriv=self._rows(extract_back.input_deriv, _FRAMES),
        )
        commands += [back, self._sizing(DeallocMatrix, self._derivs)]
        self._insert(chain.extract_back_at, commands)

    def _extract(self, output: Ids) -> Table:
        """The commands that extract the statistics of each part."""
        return self._like(
            self.chain.extract_at,
            Propagate,
            input=self._rows(self.chain.extract.input, _FRAMES),
            output=output,
            precomputed_indexes=self._extracting,
        )

    def _like(self, command: int, command_type: type[Command], **operands: Ids | int) -> Table:
        """Returns a command once for each part, with other operands."""
        rows = np.repeat(self.program.table[[command]], len(self.parts), axis=0)
        for name, values in operands.items():
            rows[:, columns(command_type)[name]] = values
        return rows

    def _sizing(self, command_type: type[Command], matrices: Ids) -> Table:
        return command_rows(command_type, len(matrices), matrix=matrices)

    def _insert(self, before: int, commands: list[Table]) -> None:
        """Inserts commands of each part: all those of the first one, then those of the next."""
        self.edit.insert(before, np.stack(commands, axis=1).reshape(-1, TABLE_WIDTH))

    def _rows(self, submatrix: int, which: int) -> Ids | int:
        """Returns the rows of a submatrix that belong to each part; 0 for submatrix 0."""
        if not submatrix:
            return 0
        rows = np.repeat(self.program.submatrices[[submatrix]], len(self.parts), axis=0)
        start = [part[which].start for part in self.parts]
        rows[:, ROW_OFFSET] += np.array(start, np.int32)
        rows[:, NUM_ROWS] = np.subtract([part[which].stop for part in self.parts], start)
        return self.edit.submatrices(rows)

    def _extraction_indexes(self, part: _Part) -> StatisticsExtractionPrecomputedIndexes:
        indexes: Any = self.program.precomputed_indexes[self.chain.extract.precomputed_indexes]
        backward = indexes.backward_indexes
        if len(backward):
            backward = backward[part.frames] - np.int32(part.statistics.start)
        return StatisticsExtractionPrecomputedIndexes(
            forward_indexes=indexes.forward_indexes[part.statistics] - np.int32(part.frames.start),
            backward_indexes=backward,
        )

    def _pooling_indexes(self, part: _Part) -> StatisticsPoolingPrecomputedIndexes:
        indexes: Any = self.program.precomputed_indexes[self.chain.pool.precomputed_indexes]
        backward = indexes.backward_indexes
        if len(backward):
            backward = backward[part.statistics] - np.int32(part.pooled.start)
        return StatisticsPoolingPrecomputedIndexes(
            forward_indexes=indexes.forward_indexes[part.pooled] - np.int32(part.statistics.start),
            backward_indexes=backward,
        )
