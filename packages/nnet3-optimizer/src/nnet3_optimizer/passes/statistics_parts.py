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
from nnet3_compiler.declaration import ALPHA_COLUMN, FIRST_OPERAND_COLUMN, OPCODE_COLUMN, alpha_bits
from nnet3_descriptors.components import (
    StatisticsExtractionPrecomputedIndexes,
    StatisticsPoolingPrecomputedIndexes,
)
from nnet3_optimizer.analysis.csr import Ids
from nnet3_optimizer.debug_info import rows_of
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.loops import is_in_segments
from nnet3_optimizer.memory.live import FLOAT_BYTES
from nnet3_optimizer.passes.unused_matrices import without_unused_matrices
from nnet3_optimizer.passes.uses import Uses
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
    uses = Uses(program)
    edit = Edit(program)
    found = False
    for command in pools.tolist():
        chain = _Finder(program, uses).chain(command)
        parts = _parts(program, chain, least_bytes) if chain is not None else []
        if chain is not None and len(parts) > 1:
            _Splitting(program, edit, chain).split(parts)
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
    first, last = extract.forward_indexes.T.astype(np.int64)
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

    def __init__(self, program: Program, edit: Edit, chain: _Chain) -> None:
        self.program = program
        self.edit = edit
        self.chain = chain

    def split(self, parts: list[_Part]) -> None:
        """Replaces the chain."""
        chain = self.chain
        at = [chain.extract_at, chain.pool_at, *chain.copies]
        if chain.pool_back is not None:
            at += [chain.pool_back_at, chain.extract_back_at]
        self.edit.delete(at)
        for part in parts:
            self._forward(part)

    def _forward(self, part: _Part) -> None:
        chain, rows = self.chain, _rows
        frames = rows(self.edit, chain.extract.input, part.frames)
        pooled = rows(self.edit, chain.pool.output, part.pooled)
        extracting = self.edit.precomputed(self._extraction_indexes(part))
        pooling = self.edit.precomputed(self._pooling_indexes(part))
        statistics = self._matrix(part, chain.extract.output)
        extract = attrs.evolve(
            chain.extract, input=frames, output=statistics, precomputed_indexes=extracting
        )
        pool = attrs.evolve(
            chain.pool, input=statistics, output=pooled, precomputed_indexes=pooling
        )
        commands = [
            AllocMatrixZeroed(matrix=statistics),
            extract,
            pool,
            DeallocMatrix(matrix=statistics),
        ]
        self._insert(chain.pool_at, commands)
        if chain.pool_back is None or chain.extract_back is None:
            return
        derivs = self._matrix(part, chain.pool_back.input_deriv)
        pool_back = attrs.evolve(
            chain.pool_back,
            precomputed_indexes=pooling,
            output_value=self._if_given(chain.pool_back.output_value, part.pooled),
            output_deriv=rows(self.edit, chain.pool_back.output_deriv, part.pooled),
            input_deriv=derivs,
        )
        commands = []
        if chain.pool_back.input_value:
            again = self._matrix(part, chain.extract.output)
            commands += [AllocMatrixZeroed(matrix=again), attrs.evolve(extract, output=again)]
            pool_back = attrs.evolve(pool_back, input_value=again)
        extract_back = attrs.evolve(
            chain.extract_back,
            precomputed_indexes=extracting,
            input_value=self._if_given(chain.extract_back.input_value, part.frames),
            output_deriv=derivs,
            input_deriv=rows(self.edit, chain.extract_back.input_deriv, part.frames),
        )
        commands += [AllocMatrixZeroed(matrix=derivs), pool_back]
        if pool_back.input_value:
            commands.append(DeallocMatrix(matrix=pool_back.input_value))
        commands += [extract_back, DeallocMatrix(matrix=derivs)]
        self._insert(chain.extract_back_at, commands)

    def _insert(self, before: int, commands: list[Any]) -> None:
        self.edit.insert(before, np.array([command.row for command in commands], np.int32))

    def _if_given(self, submatrix: int, part: slice) -> int:
        return _rows(self.edit, submatrix, part) if submatrix else 0

    def _matrix(self, part: _Part, like: int) -> int:
        """Adds a matrix for the statistics of a part, or their derivatives."""
        matrix, _, _, _, cols = self.edit.submatrix(like)
        info = None
        if self.program.debug_info:
            begin, end = part.statistics.start, part.statistics.stop
            info = rows_of(self.program.debug_info[matrix], begin, end)
        return self.edit.matrix(part.statistics.stop - part.statistics.start, cols, info)

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


def _rows(edit: Edit, submatrix: int, rows: slice) -> int:
    return edit.rows_of(submatrix, rows.start, rows.stop - rows.start)
