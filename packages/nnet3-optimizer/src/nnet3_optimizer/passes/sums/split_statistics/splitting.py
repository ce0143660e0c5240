"""Replaces commands for all statistics by commands for parts of them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from nnet3_computation.analysis import NUM_COLS, NUM_ROWS, ROW_OFFSET
from nnet3_computation.arrays import Ids
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    TABLE_WIDTH,
    AllocMatrixZeroed,
    Backprop,
    Command,
    DeallocMatrix,
    Propagate,
    Table,
    columns,
    command_rows,
)
from nnet3_computation.computation import MatrixDebugInfo

from nnet3_optimizer.debug_info import rows_of
from nnet3_optimizer.draft import Draft
from nnet3_optimizer.editing import Edit
from nnet3_optimizer.passes.sums.split_statistics.chains import StatisticsChain
from nnet3_optimizer.passes.sums.split_statistics.parts import (
    StatisticsParts,
    extraction_indexes,
    pooling_indexes,
)
from nnet3_optimizer.unused_matrices import SIZING

_Operand = Ids | int
_Commands = tuple[type[Command], Table, dict[str, _Operand]]
"""A command for each part: its type, its row, and the operands that differ."""


class Splitting:
    """Replaces a chain by parts of it in an edit of a draft."""

    def __init__(
        self, draft: Draft, edit: Edit, chain: StatisticsChain, parts: StatisticsParts
    ) -> None:
        self.draft = draft
        self.edit = edit
        self.chain = chain
        self.parts = parts
        self._statistics, self._derivs, self._again = self._matrices()
        self._extracting, self._pooling = self._precomputed()

    def split(self) -> None:
        """Replaces the chain."""
        self.edit.delete(self._all_commands())
        self._forward()
        if self.chain.pool_back is not None:
            self._backward(self.chain.pool_back, self.chain.extract_back)

    def _all_commands(self) -> Ids:
        """The commands of the chain, and the ones that allocate and free its own matrices."""
        draft, matrix_of = self.draft, self.draft.layout.matrix_of
        is_gone = np.zeros(len(draft.matrices), dtype=np.bool_)
        is_gone[matrix_of[self.chain.between]] = True
        sizing = SIZING.positions(draft.opcodes)
        matrix = matrix_of.take(draft.table[sizing, FIRST_OPERAND_COLUMN])
        return np.concatenate([self.chain.commands, sizing[is_gone.take(matrix)]])

    def _matrices(self) -> tuple[Ids, Ids, Ids]:
        """Adds matrices for each part: statistics, their derivatives, and statistics made again.

        Returns:
            The submatrices that cover them, (parts,) each; empty without backward part.
        """
        chain, draft = self.chain, self.draft
        likes = [chain.extract.output]
        if chain.pool_back is not None:
            likes.append(chain.pool_back.input_deriv)
            if chain.pool_back.input_value:
                likes.append(chain.extract.output)
        begins = self.parts.statistics[:-1].tolist()
        ends = self.parts.statistics[1:].tolist()
        infos: list[MatrixDebugInfo | None] = [None] * (len(likes) * len(self.parts))
        if draft.debug_info:
            known = {like: draft.debug_info[int(draft.layout.matrix_of[like])] for like in likes}
            of_parts = [
                {like: rows_of(info, begin, end) for like, info in known.items()}
                for begin, end in zip(begins, ends, strict=True)
            ]
            infos = [of_part[like] for of_part in of_parts for like in likes]
        widths = draft.submatrices[likes, NUM_COLS].tolist()
        counts = [end - begin for begin, end in zip(begins, ends, strict=True)]
        sizes = [(count, width) for count in counts for width in widths]
        _, added = self.edit.matrices(sizes, infos)
        columns_of_parts = list(added.reshape(len(self.parts), len(likes)).T)
        nothing = added[:0]
        statistics, derivs, again = [*columns_of_parts, nothing, nothing][:3]
        return statistics, derivs, again

    def _precomputed(self) -> tuple[Ids, Ids]:
        """Adds the indexes of each part for extraction and for pooling, (parts,) each."""
        extract: Any = self.draft.precomputed_indexes[self.chain.extract.precomputed_indexes]
        pool: Any = self.draft.precomputed_indexes[self.chain.pool.precomputed_indexes]
        numbers = [
            (self.edit.precomputed(one), self.edit.precomputed(other))
            for one, other in zip(
                extraction_indexes(extract, self.parts),
                pooling_indexes(pool, self.parts),
                strict=True,
            )
        ]
        extracting, pooling = np.array(numbers, dtype=np.int64).T
        return extracting, pooling

    def _forward(self) -> None:
        """Extracts and pools part by part."""
        chain, table = self.chain, self.draft.table
        pooled = self._rows(chain.pool.output, self.parts.pooled)
        pooling: dict[str, _Operand] = {
            "input": self._statistics,
            "output": pooled,
            "precomputed_indexes": self._pooling,
        }
        self._insert(
            chain.pool_at,
            _sizing(AllocMatrixZeroed, self._statistics),
            self._extract(self._statistics),
            (Propagate, table[chain.pool_at], pooling),
            _sizing(DeallocMatrix, self._statistics),
        )

    def _backward(self, pool_back: Any, extract_back: Any) -> None:
        """Extracts again if needed, and takes derivatives from pooled rows to frames."""
        chain, table, parts = self.chain, self.draft.table, self.parts
        pooling: dict[str, _Operand] = {
            "precomputed_indexes": self._pooling,
            "output_value": self._rows(pool_back.output_value, parts.pooled),
            "output_deriv": self._rows(pool_back.output_deriv, parts.pooled),
            "input_deriv": self._derivs,
        }
        extracting: dict[str, _Operand] = {
            "precomputed_indexes": self._extracting,
            "input_value": self._rows(extract_back.input_value, parts.frames),
            "output_deriv": self._derivs,
            "input_deriv": self._rows(extract_back.input_deriv, parts.frames),
        }
        before, after = [], []
        if pool_back.input_value:
            pooling["input_value"] = self._again
            before = [_sizing(AllocMatrixZeroed, self._again), self._extract(self._again)]
            after = [_sizing(DeallocMatrix, self._again)]
        self._insert(
            chain.extract_back_at,
            *before,
            _sizing(AllocMatrixZeroed, self._derivs),
            (Backprop, table[chain.pool_back_at], pooling),
            *after,
            (Backprop, table[chain.extract_back_at], extracting),
            _sizing(DeallocMatrix, self._derivs),
        )

    @cached_property
    def _frames(self) -> _Operand:
        """The input of the extraction of each part."""
        return self._rows(self.chain.extract.input, self.parts.frames)

    def _extract(self, output: Ids) -> _Commands:
        """The commands that extract the statistics of each part."""
        return (
            Propagate,
            self.draft.table[self.chain.extract_at],
            {"input": self._frames, "output": output, "precomputed_indexes": self._extracting},
        )

    def _insert(self, before: int, *commands: _Commands) -> None:
        """Inserts commands of each part: all those of the first one, then those of the next."""
        rows = np.empty((len(self.parts), len(commands), TABLE_WIDTH), np.int32)
        for number, (command_type, row, operands) in enumerate(commands):
            rows[:, number] = row
            for name, values in operands.items():
                rows[:, number, columns(command_type)[name]] = values
        self.edit.insert(before, rows.reshape(-1, TABLE_WIDTH))

    def _rows(self, submatrix: int, borders: Ids) -> _Operand:
        """Returns the rows of a submatrix that belong to each part; 0 for submatrix 0."""
        if not submatrix:
            return 0
        rows = self.draft.submatrices[[submatrix]].repeat(len(self.parts), axis=0)
        rows[:, ROW_OFFSET] += borders[:-1].astype(np.int32)
        rows[:, NUM_ROWS] = borders[1:] - borders[:-1]
        return self.edit.submatrices(rows)


_SIZING = {each: command_rows(each, 1)[0] for each in (AllocMatrixZeroed, DeallocMatrix)}


def _sizing(command_type: type[AllocMatrixZeroed | DeallocMatrix], matrices: Ids) -> _Commands:
    """The commands that allocate or free the matrix of each part."""
    return command_type, _SIZING[command_type], {"matrix": matrices}
