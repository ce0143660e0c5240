"""Pass: statistics over time are extracted and pooled for a few sequences at a time."""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import numpy as np
from nnet3_computation import analysis, computation, memory
from nnet3_computation.arrays import Bools, Ids, freeze, where
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    TABLE_WIDTH,
    AllocMatrixZeroed,
    Backprop,
    BackpropNoModelUpdate,
    Command,
    DeallocMatrix,
    MatrixCopy,
    Propagate,
    Table,
    columns,
    command_rows,
    is_in_segments,
    operands_of,
)
from nnet3_descriptors.components import (
    StatisticsExtractionPrecomputedIndexes,
    StatisticsPoolingPrecomputedIndexes,
)
from nnet3_descriptors.values import remembered

from nnet3_optimizer.debug_info import rows_of
from nnet3_optimizer.draft import SIZING, Draft, Edit

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet


LEAST_BYTES = 1 << 20
"""The smallest size of a part, in bytes."""


def split_statistics(draft: Draft, least_bytes: int = LEAST_BYTES) -> Draft:
    """Extracts statistics from some sequences, pools them, and goes on to the next sequences.

    Extracted statistics have more than twice as many columns as their input, and one row for each
    frame, but are only needed for sums. In the backward part they are extracted again, for some
    sequences at a time, and their derivatives are added to the frames at once.

    1. A StatisticsExtraction feeds a StatisticsPooling and nothing else, directly or as a copy;
       their derivatives likewise. The input of the extraction does not change in between.
    2. Both have the rows of a sequence next to each other, so that each output row is a sum over a
       range of rows. A cut lies where no range reaches across it, and every row belongs to a part.
       A row of either component depends on its own range alone, so results are the same, bit for
       bit.
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
    pools = _pools(draft)
    if not len(pools) or is_in_segments(draft.table):
        return draft
    finder = Finder(draft, draft.analysis.uses)
    edit: Edit | None = None
    for command in pools.tolist():
        chain = finder.chain(command)
        parts = None if chain is None else find_parts(draft, chain, least_bytes)
        if chain is not None and parts is not None:
            edit = edit or Edit(draft)
            Splitting(draft, edit, chain, parts).split()
    return edit.draft() if edit else draft


def _pools(draft: Draft) -> Ids:
    """Returns the commands that pool statistics."""
    does_pool = _do_pool(draft.nnet)
    if not does_pool.any():
        return _NONE
    at = draft.positions(Propagate.OPCODE)
    pools: Ids = at[does_pool[draft.table[at, FIRST_OPERAND_COLUMN]]]
    return pools


_NONE = np.zeros(0, dtype=np.int64)


@remembered
def _do_pool(nnet: Nnet) -> Bools:
    """Which components, (components,) bool, pool statistics."""
    return np.array([c.type == "StatisticsPoolingComponent" for c in nnet.components], np.bool_)


_OUTPUT, _INPUT = FIRST_OPERAND_COLUMN, FIRST_OPERAND_COLUMN + 1
_BACKWARD = (Backprop.OPCODE, BackpropNoModelUpdate.OPCODE)


@attrs.frozen(kw_only=True)
class StatisticsChain:
    """An extraction and a pooling; commands are given by their operands, see `operands_of`.

    Attributes:
        extract, pool: The Propagate commands.
        extract_at, pool_at: Their positions.
        extract_back, pool_back: The Backprop commands, None without derivative.
        extract_back_at, pool_back_at: Their positions.
        copies: The positions of the copies between them.
    """

    extract: Any
    pool: Any
    extract_at: int
    pool_at: int
    extract_back: Any = None
    pool_back: Any = None
    extract_back_at: int = 0
    pool_back_at: int = 0
    copies: tuple[int, ...] = ()

    @property
    def commands(self) -> list[int]:
        """The positions of all of its commands."""
        backward = [] if self.pool_back is None else [self.pool_back_at, self.extract_back_at]
        return [self.extract_at, self.pool_at, *self.copies, *backward]

    @property
    def between(self) -> list[int]:
        """The submatrices that only its commands use: statistics and their derivatives."""
        forward = [self.extract.output, self.pool.input]
        if self.pool_back is None:
            return forward
        return [*forward, self.pool_back.input_deriv, self.extract_back.output_deriv]


class Finder:
    """Finds chains that satisfy rule 1 of `split_statistics`."""

    def __init__(self, draft: Draft, uses: analysis.Uses) -> None:
        self.draft = draft
        self.uses = uses

    def chain(self, pool_at: int) -> StatisticsChain | None:
        """Returns the chain that ends with a pooling, or None."""
        pool = operands_of(self.draft.row(pool_at))
        copies: list[int] = []
        given = self.uses.matrix_of(pool.input)
        made = self.uses.users_of(given, writing=True)
        readers = {*self.uses.users_of(given, writing=False)}
        if len(made) == 1 and self.draft.copies_whole(made[0], MatrixCopy.OPCODE):
            copies.append(made[0])
            given = self.uses.matrix_of(self.draft.row(made[0])[_INPUT])
            made = self.uses.users_of(given, writing=True)
            readers.update(self.uses.users_of(given, writing=False))
        if len(made) != 1 or self.draft.row(made[0])[OPCODE_COLUMN] != Propagate.OPCODE:
            return None
        extract = operands_of(self.draft.row(made[0]))
        component = self.draft.nnet.components[extract.component]
        whole = (pool.input, pool.output, extract.input, extract.output)
        if component.type != "StatisticsExtractionComponent" or not self._are_whole(*whole):
            return None
        if not self._is_written_once(pool.output, pool_at):
            return None
        forward = StatisticsChain(
            extract=extract, pool=pool, extract_at=made[0], pool_at=pool_at, copies=tuple(copies)
        )
        backward = readers.difference([pool_at, *copies])
        if not backward:
            return forward
        return self._with_backward(forward, *backward) if len(backward) == 1 else None

    def _with_backward(self, chain: StatisticsChain, pool_back_at: int) -> StatisticsChain | None:
        """Adds the backward commands; None if rule 1 fails."""
        row = self.draft.row(pool_back_at)
        if row[OPCODE_COLUMN] not in _BACKWARD or row[_OUTPUT] != chain.pool.component:
            return None
        pool_back = operands_of(row)
        deriv, copies = self.uses.matrix_of(pool_back.input_deriv), list(chain.copies)
        used = self.uses.users_of(deriv, writing=False)
        if not deriv or not self._is_written_once(pool_back.input_deriv, pool_back_at):
            return None
        if len(used) == 1 and self.draft.copies_whole(used[0], MatrixCopy.OPCODE):
            copies.append(used[0])
            copied = self.draft.row(used[0])[_OUTPUT]
            if not self._is_written_once(copied, used[0]):
                return None
            used = self.uses.users_of(self.uses.matrix_of(copied), writing=False)
        if len(used) != 1 or self.draft.row(used[0])[OPCODE_COLUMN] not in _BACKWARD:
            return None
        extract_back = operands_of(self.draft.row(used[0]))
        fits = (
            extract_back.component == chain.extract.component
            and extract_back.input_deriv > 0
            and pool_back.precomputed_indexes == chain.pool.precomputed_indexes
            and extract_back.precomputed_indexes == chain.extract.precomputed_indexes
            and self._are_whole(pool_back.output_deriv, pool_back.input_deriv)
            and self._are_whole(extract_back.output_deriv, extract_back.input_deriv)
            and self._are_whole(*filter(None, (pool_back.input_value, pool_back.output_value)))
            and self.uses.matrix_of(extract_back.input_value)
            in (0, self.uses.matrix_of(chain.extract.input))
            and self.uses.is_unchanged(chain.extract.input, chain.extract_at, used[0])
            and self._is_written_once(extract_back.input_deriv, used[0])
        )
        if not fits:
            return None
        return attrs.evolve(
            chain,
            pool_back=pool_back,
            extract_back=extract_back,
            pool_back_at=pool_back_at,
            extract_back_at=used[0],
            copies=tuple(copies),
        )

    def _are_whole(self, *submatrices: int) -> bool:
        return self.draft.layout.are_whole(*submatrices)

    def _is_written_once(self, submatrix: int, command: int) -> bool:
        return self.uses.users_of(self.uses.matrix_of(submatrix), writing=True) == [command]


MOST_PARTS = 8


class StatisticsParts(NamedTuple):
    """Rows that belong together: part i has the rows borders[i] <= r < borders[i + 1].

    Attributes:
        frames: (parts + 1,) the borders of the input of the extraction.
        statistics: (parts + 1,) the borders of the statistics.
        pooled: (parts + 1,) the borders of the output of the pooling.
    """

    frames: Ids
    statistics: Ids
    pooled: Ids

    def __len__(self) -> int:
        """The number of parts."""
        return len(self.pooled) - 1


def find_parts(draft: Draft, chain: StatisticsChain, least_bytes: int) -> StatisticsParts | None:
    """Returns the parts, at least two; None if they save too little or rule 2 fails."""
    pool: Any = draft.precomputed_indexes[chain.pool.precomputed_indexes]
    extract: Any = draft.precomputed_indexes[chain.extract.precomputed_indexes]
    if not isinstance(pool, StatisticsPoolingPrecomputedIndexes) or not isinstance(
        extract, StatisticsExtractionPrecomputedIndexes
    ):
        return None
    sizes = draft.matrices.take(draft.layout.matrix_of, axis=0)
    rows, cols = sizes[chain.extract.output].tolist()
    worth_it = min(MOST_PARTS, rows * cols * memory.FLOAT_BYTES // least_bytes)
    if worth_it < 2:
        return None
    begin, end = pool.forward_indexes.T
    # The ranges of output rows before i end by reach[i - 1]; the others begin from ahead[i] on.
    reach = np.maximum.accumulate(end)
    ahead = np.minimum.accumulate(begin[::-1])[::-1]
    cuts = where(reach[:-1] == ahead[1:]) + 1
    first, last = extract.forward_indexes.T
    in_order = bool((first[1:] == last[:-1]).all())
    covered = in_order and first[0] == 0 and last[-1] == sizes[chain.extract.input, 0]
    if not covered or ahead[0] != 0 or reach[-1] != rows:
        return None
    count, choices = min(worth_it, len(cuts) + 1), len(cuts) + 1
    if count < 2:
        return None
    chosen = [number * choices // count - 1 for number in range(1, count)]
    pooled = np.array([0, *cuts[chosen].tolist(), len(begin)])
    statistics = np.append(ahead[pooled[:-1]], rows)
    return StatisticsParts(
        frames=np.append(first[statistics[:-1]], last[-1]), statistics=statistics, pooled=pooled
    )


def extraction_indexes(
    indexes: StatisticsExtractionPrecomputedIndexes, parts: StatisticsParts
) -> list[StatisticsExtractionPrecomputedIndexes]:
    """Returns the precomputed indexes of the extraction of each part, given those of all rows."""
    forward = _by_part(indexes.forward_indexes, parts.statistics, parts.frames)
    backward = _by_part(indexes.backward_indexes, parts.frames, parts.statistics)
    return [
        StatisticsExtractionPrecomputedIndexes(forward_indexes=one, backward_indexes=other)
        for one, other in zip(forward, backward, strict=True)
    ]


def pooling_indexes(
    indexes: StatisticsPoolingPrecomputedIndexes, parts: StatisticsParts
) -> list[StatisticsPoolingPrecomputedIndexes]:
    """Returns the precomputed indexes of the pooling of each part, given those of all rows."""
    forward = _by_part(indexes.forward_indexes, parts.pooled, parts.statistics)
    backward = _by_part(indexes.backward_indexes, parts.statistics, parts.pooled)
    return [
        StatisticsPoolingPrecomputedIndexes(forward_indexes=one, backward_indexes=other)
        for one, other in zip(forward, backward, strict=True)
    ]


def _by_part(indexes: Table, own: Ids, named: Ids) -> list[Table]:
    """Cuts indexes into parts, and counts the rows that they name from the begin of the part.

    Args:
        indexes: (rows, ...) the numbers of rows; empty if there are none, as without derivatives.
        own: (parts + 1,) the borders of the rows of the indexes.
        named: (parts + 1,) the borders of the rows that they name.
    """
    if not len(indexes):
        return [indexes] * (len(own) - 1)
    counted = indexes.copy()
    bounds = [slice(*each) for each in itertools.pairwise(own.tolist())]
    for part, begin in zip(bounds, named.tolist(), strict=False):
        counted[part] -= begin
    freeze(counted)
    return [counted[part] for part in bounds]


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
        infos: list[computation.MatrixDebugInfo | None] = [None] * (len(likes) * len(self.parts))
        if draft.debug_info:
            known = {like: draft.debug_info[int(draft.layout.matrix_of[like])] for like in likes}
            of_parts = [
                {like: rows_of(info, begin, end) for like, info in known.items()}
                for begin, end in zip(begins, ends, strict=True)
            ]
            infos = [of_part[like] for of_part in of_parts for like in likes]
        widths = draft.submatrices[likes, analysis.NUM_COLS].tolist()
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
        rows[:, analysis.ROW_OFFSET] += borders[:-1].astype(np.int32)
        rows[:, analysis.NUM_ROWS] = borders[1:] - borders[:-1]
        return self.edit.submatrices(rows)


_SIZING = {each: command_rows(each, 1)[0] for each in (AllocMatrixZeroed, DeallocMatrix)}


def _sizing(command_type: type[AllocMatrixZeroed | DeallocMatrix], matrices: Ids) -> _Commands:
    """The commands that allocate or free the matrix of each part."""
    return command_type, _SIZING[command_type], {"matrix": matrices}
