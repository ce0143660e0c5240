"""Forward commands: the value of every step, from those of earlier ones."""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation.arrays import NONE, IntArray, where
from nnet3_computation.commands import (
    AddRows,
    AddRowsMulti,
    Emission,
    IndexLists,
    MatrixAdd,
    SetConst,
    command_rows,
)
from numpy.typing import NDArray

from nnet3_compiler.assembly.pieces import PieceKind, Pieces
from nnet3_compiler.assembly.step_info import StepInfo
from nnet3_compiler.shortcut import Minibatch

PLACES_PER_STEP = 1 << 32
"""Commands of step s have places from s * PLACES_PER_STEP on."""

AFTER_RANGES = PLACES_PER_STEP // 2
"""Ranges come first in a step: a sum that starts as a copy of a matrix may take over its memory."""


@attrs.frozen(kw_only=True, eq=False)
class DescriptorForward:
    """Emits the commands that add up the values of descriptors. All matrices are zero before.

    Attributes:
        pieces: The classified input locations.
        info: The submatrices of values.
        lists: Receives lists of rows.
    """

    pieces: Pieces
    info: StepInfo
    lists: IndexLists

    def emit(self, emission: Emission) -> None:
        """Adds the commands of all descriptors: first constants, then one command a piece."""
        self._emit_constants(emission)
        self._emit_ranges(emission)
        self._emit_rows(emission)
        self._emit_scattered(emission)

    def _output(self, pieces: IntArray) -> IntArray:
        locations = self.pieces.locations
        return self.info.value_part[locations.step[pieces]] + locations.part[pieces]

    def _place(self, pieces: IntArray) -> NDArray[np.int64]:
        return self.pieces.locations.step[pieces].astype(np.int64) * PLACES_PER_STEP + pieces + 1

    def _emit_constants(self, emission: Emission) -> None:
        locations = self.pieces.locations
        step = locations.constant_step.astype(np.int64)
        if not len(step):
            return
        whole = self.info.value_part[step] + locations.constant_part
        runs = [
            (number, first, last - first)
            for number in range(len(step))
            for first, last in self._constant_runs(number)
        ]
        number, first, count = np.array(runs, np.int32).T
        output = self.info.submatrices.parts(whole[number], first, count)
        alpha = locations.constant[number]
        rows = command_rows(SetConst, len(number), alpha, output=output)
        emission.add(step[number] * PLACES_PER_STEP, rows)

    def _constant_runs(self, number: int) -> list[tuple[int, int]]:
        """Returns the ranges of rows, of all sequences, that a constant is set in."""
        locations, minibatch = self.pieces.locations, self.pieces.minibatch
        first, count = locations.constant_rows[number].tolist()
        block = int(self.pieces.steps.block[locations.constant_step[number]])
        if minibatch.size == 1 or (first % block == 0 and count % block == 0):
            return [(first * minibatch.size, (first + count) * minibatch.size)]
        pattern = np.arange(first, first + count, dtype=np.int32)
        rows = np.sort(minibatch.rows(pattern, block, len(pattern)))
        ends = where(np.diff(rows) != 1)
        begins = np.concatenate([[0], ends + 1])
        ends = np.append(ends, len(rows) - 1)
        return list(zip(rows[begins].tolist(), (rows[ends] + 1).tolist(), strict=True))

    def _emit_ranges(self, emission: Emission) -> None:
        pieces, size = self.pieces, self.pieces.minibatch.size
        chosen = pieces.of_kind(PieceKind.RANGE)
        source = self.info.submatrices.parts(
            self.info.value[pieces.source_step[chosen]],
            pieces.source_first[chosen] * size,
            pieces.count[chosen] * size,
        )
        alpha = pieces.locations.alpha[chosen]
        output = self._output(chosen)
        rows = command_rows(MatrixAdd, len(chosen), alpha, output=output, input=source)
        emission.add(self._place(chosen), rows)

    def _emit_rows(self, emission: Emission) -> None:
        pieces = self.pieces
        chosen = pieces.of_kind(PieceKind.ROWS)
        block = pieces.steps.block
        numbers = [
            self.lists.indexes.add(
                pieces.minibatch.rows(
                    pieces.rows(piece),
                    int(block[pieces.source_step[piece]]),
                    int(block[pieces.locations.step[piece]]),
                )
            )
            for piece in chosen.tolist()
        ]
        rows = command_rows(
            AddRows,
            len(chosen),
            pieces.locations.alpha[chosen],
            output=self._output(chosen),
            input=self.info.value[pieces.source_step[chosen]],
            indexes=np.array(numbers, np.int32),
        )
        emission.add(self._place(chosen) + AFTER_RANGES, rows)

    def _emit_scattered(self, emission: Emission) -> None:
        pieces = self.pieces
        chosen = pieces.of_kind(PieceKind.SCATTERED)
        numbers = [
            self.lists.multi.add(
                ScatteredRows.of(pieces, piece, self.info.value).repeated(pieces.minibatch)
            )
            for piece in chosen.tolist()
        ]
        rows = command_rows(
            AddRowsMulti,
            len(chosen),
            pieces.locations.alpha[chosen],
            output=self._output(chosen),
            indexes_multi=np.array(numbers, np.int32),
        )
        emission.add(self._place(chosen) + AFTER_RANGES, rows)


@attrs.frozen(kw_only=True, eq=False)
class ScatteredRows:
    """Rows of several steps, for the rows of one sequence.

    Attributes:
        pairs: (K, 2) int32: submatrix, row among those of one sequence; (-1, -1) for none.
        source_block: (K,) int32, the block of the source step of each row; see `shortcut`.
        block: The block of the step whose rows these are.
    """

    pairs: IntArray
    source_block: IntArray
    block: int

    @classmethod
    def of(cls, pieces: Pieces, piece: int, submatrix_of_step: IntArray) -> ScatteredRows:
        """Returns the rows of a piece.

        Args:
            pieces: The pieces.
            piece: The number of one.
            submatrix_of_step: (S,) int32, the submatrix of each step; rows of steps without one are
                left out.
        """
        steps = pieces.steps
        source = pieces.source_rows(piece)
        step = steps.step_of_row[source]
        submatrix = np.where(source >= 0, submatrix_of_step[step], 0)
        pairs = np.stack([submatrix, source - steps.begin[step]], axis=1)
        pairs[submatrix <= 0] = NONE
        return cls(
            pairs=pairs,
            source_block=steps.block[step],
            block=int(steps.block[pieces.locations.step[piece]]),
        )

    def repeated(self, minibatch: Minibatch) -> IntArray:
        """Returns the pairs of all sequences: (K * sequences, 2) int32."""
        submatrix, row = self.pairs.T
        full = np.empty((len(row) * minibatch.size, 2), np.int32)
        full[:, 1] = minibatch.rows(row, self.source_block, self.block)
        submatrix = submatrix.reshape(-1, 1, self.block)
        full[:, 0] = np.repeat(submatrix, minibatch.size, axis=1).reshape(-1)
        return full
