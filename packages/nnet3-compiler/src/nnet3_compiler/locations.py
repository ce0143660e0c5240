"""Input locations: the rows that are added up to make each row of a descriptor's value.

Every part of a descriptor (they are appended column-wise) is a sum of scaled rows of other steps.
Such a sum consists of *columns*: a column gives each row at most one source row. At first the
columns of a part are its forwarding descriptors. Then `arranged` changes them so that, as far as
possible, all rows of a column come from one step: such a column needs only one command on one
matrix.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np
from nnet3_computation.arrays import NONE, IntArray, run_starts, where
from nnet3_descriptors.descriptors import ForwardingDescriptor, Node, SumDescriptor
from numpy.typing import NDArray

from nnet3_compiler.shortcut import Minibatch
from nnet3_compiler.steps.building import Steps
from nnet3_compiler.steps.network import Graphs, Network

BoolArray = NDArray[np.bool_]

_LAST = np.iinfo(np.int32).max


class PieceKind(enum.IntEnum):
    """How the source rows of a piece lie."""

    EMPTY = 0
    """There are no source rows."""
    RANGE = 1
    """They are a range of the rows of one step, in order: a sum of matrices."""
    ROWS = 2
    """They are rows of one step: a sum of rows."""
    SCATTERED = 3
    """They are rows of several steps."""


class Pieces(NamedTuple):
    """The sums that make the parts of all descriptors, as pieces: one column of one step.

    Attributes:
        steps: The steps.
        minibatch: The sequences that the rows stand for.
        step: (P,) int32, the step whose rows are computed.
        part: (P,) int32, the part of its descriptor.
        alpha: (P,) float32, the scale of the source rows.
        begin: (P,) int64, where the piece begins in `source`.
        source: (total,) int32, the source row of each row of each piece (numbered as in `Steps`),
            or -1 for none.
        kind: (P,) int32, values of `PieceKind`.
        source_step: (P,) int32, the step that the rows come from, if they come from a single one.
        source_first: (P,) int32, the first of its rows that is used, if they are a range.
        constant_step: (C,) int32, a step, in a part of which a constant is added ...
        constant_part: (C,) int32, ... the part, ...
        constant_rows: (C, 2) int32, ... the first row in the step and the number of rows, ...
        constant: (C,) float32, ... and the constant.
    """

    steps: Steps
    minibatch: Minibatch
    step: IntArray
    part: IntArray
    alpha: NDArray[np.float32]
    begin: NDArray[np.int64]
    source: IntArray
    kind: IntArray
    source_step: IntArray
    source_first: IntArray
    constant_step: IntArray
    constant_part: IntArray
    constant_rows: IntArray
    constant: NDArray[np.float32]

    @property
    def num_rows(self) -> IntArray:
        """Number of rows of each piece: (P,) int32."""
        return self.steps.count[self.step]

    def of_kind(self, kind: PieceKind) -> IntArray:
        """Returns the numbers of the pieces of a kind."""
        return where(self.kind == kind).astype(np.int32)

    def source_rows(self, piece: int) -> IntArray:
        """Returns the source rows of a piece, numbered through all steps; -1 for none."""
        begin = int(self.begin[piece])
        return self.source[begin : begin + int(self.steps.count[self.step[piece]])]

    def rows(self, piece: int) -> IntArray:
        """Returns the rows of the source step that a piece of kind ROWS takes; -1 for none."""
        source = self.source_rows(piece)
        first = self.steps.begin[self.source_step[piece]]
        return np.where(source >= 0, source - first, NONE).astype(np.int32)

    def pairs(self, piece: int, submatrix_of_step: IntArray) -> IntArray:
        """Returns the rows of a piece of kind SCATTERED, for one sequence.

        Args:
            piece: The number of the piece.
            submatrix_of_step: (S,) int32, the submatrix of each step; rows of steps without one are
                left out.

        Returns:
            (K, 2) int32: submatrix, row among those of one sequence; (-1, -1) for none.
        """
        source = self.source_rows(piece)
        step = self.steps.step_of_row[source]
        submatrix = np.where(source >= 0, submatrix_of_step[step], 0)
        pairs = np.stack([submatrix, source - self.steps.begin[step]], axis=1)
        pairs[submatrix <= 0] = NONE
        return pairs

    def repeated(self, piece: int, pairs: IntArray) -> IntArray:
        """Returns pairs of a piece, (K, 2) int32, for all sequences: (K * sequences, 2) int32."""
        size, block = self.minibatch.size, int(self.steps.block[self.step[piece]])
        source_block = self.steps.block[self.steps.step_of_row[self.source_rows(piece)]]
        full = np.empty((len(pairs) * size, 2), np.int32)
        full[:, 1] = self.minibatch.rows(pairs[:, 1], source_block, block)
        full[:, 0] = np.repeat(pairs[:, 0].reshape(-1, 1, block), size, axis=1).reshape(-1)
        return full


class _Pieces:
    """Pieces that are still being collected; their sources are cindex ids."""

    def __init__(self) -> None:
        self.columns: list[tuple[IntArray, int, float, IntArray]] = []
        self.constants: list[tuple[int, int, int, int, float]] = []

    def add(self, steps: IntArray, part: int, alpha: float, source: IntArray) -> None:
        """Adds one column of some steps, whose rows follow one another in `source`."""
        self.columns.append((steps, part, alpha, source))

    def finish(self, steps: Steps, minibatch: Minibatch) -> Pieces:
        """Returns all pieces, classified."""
        nothing = np.zeros(0, np.int32)
        columns = (*self.columns, (nothing, 0, 0.0, nothing))
        of_pieces, part, alpha, sources = zip(*columns, strict=True)
        step, sizes = np.concatenate(of_pieces), [*map(len, of_pieces)]
        count = steps.count[step].astype(np.int64)
        begin = np.cumsum(count) - count
        source = steps.row_of_cindex[np.concatenate(sources)]
        kind, source_step, source_first = _classified(steps, minibatch, step, begin, source)
        constants = np.array([row[:4] for row in self.constants], np.int32).reshape(-1, 4)
        return Pieces(
            steps=steps,
            minibatch=minibatch,
            step=step,
            part=np.repeat(np.array(part, np.int32), sizes),
            alpha=np.repeat(np.array(alpha, np.float32), sizes),
            begin=begin,
            source=source,
            kind=kind,
            source_step=source_step,
            source_first=source_first,
            constant_step=constants[:, 0],
            constant_part=constants[:, 1],
            constant_rows=constants[:, 2:],
            constant=np.array([row[4] for row in self.constants], np.float32),
        )


def _classified(
    steps: Steps,
    minibatch: Minibatch,
    step: IntArray,
    begin: NDArray[np.int64],
    source: IntArray,
) -> tuple[IntArray, IntArray, IntArray]:
    """Returns kind, source_step and source_first of pieces; see `Pieces`, as for the arguments."""
    if not len(step):
        return step, step, step
    of_row = steps.step_of_row[source]
    absent = source < 0
    first_step = np.minimum.reduceat(np.where(absent, len(steps), of_row), begin)
    source_step = np.maximum.reduceat(np.where(absent, NONE, of_row), begin)
    distance = source - np.arange(len(source), dtype=np.int32)
    is_range = np.minimum.reduceat(source, begin) >= 0
    is_range &= np.minimum.reduceat(distance, begin) == np.maximum.reduceat(distance, begin)
    source_first = source[begin] - steps.begin[source_step]
    if minibatch.size > 1:
        block = steps.block[step]
        is_range &= (block == steps.block[source_step]) & (source_first % block == 0)
        is_range &= steps.count[step] % block == 0
    kind = np.where(is_range, PieceKind.RANGE, PieceKind.ROWS)
    kind[first_step < source_step] = PieceKind.SCATTERED
    kind[source_step < 0] = PieceKind.EMPTY
    return kind.astype(np.int32), source_step.astype(np.int32), source_first.astype(np.int32)


def input_pieces(network: Network, graphs: Graphs, steps: Steps, minibatch: Minibatch) -> Pieces:
    """Returns the input locations of all steps of component-input and output nodes."""
    pieces = _Pieces()
    step_of_cindex = steps.step_of_cindex
    is_whole = _whole_nodes(graphs, steps)
    bounds, begin = steps.node_begin.tolist(), steps.begin.tolist()
    copied = network.copied.tolist()
    for node, descriptor in enumerate(network.descriptors):
        if descriptor is None or bounds[node] == bounds[node + 1]:
            continue
        own = steps.by_node[bounds[node] : bounds[node + 1]]
        if is_whole[node] and copied[node] >= 0:
            pieces.add(own, 0, 1.0, graphs.segments[0].moved_ids(copied[node], node, 0, 0))
            continue
        if is_whole[node]:
            parts = list(graphs.leaf_ids(0, node))
        else:
            own = own[steps.count[own] > 0]
            if not len(own):
                continue
            parts = _leaf_ids(graphs, node, steps.cindex_ids[_rows(steps, own)])
        for part, sum_descriptor in enumerate(descriptor.parts):
            ids, leaves = parts[part], sum_descriptor.leaves
            is_plain = len(leaves) == 1 and sum_descriptor is leaves[0]
            if is_plain and isinstance(leaves[0], Node):
                pieces.add(own, part, 1.0, ids[0])
                continue
            first_rows = steps.begin[own] - begin[own[0]]
            rows = _PartRows(pieces, steps, step_of_cindex, own, first_rows, part)
            rows.add(sum_descriptor, ids)
    return pieces.finish(steps, minibatch)


def _rows(steps: Steps, own: IntArray) -> slice:
    """Returns the rows of steps of one node."""
    return slice(int(steps.begin[own[0]]), int(steps.begin[own[-1]] + steps.count[own[-1]]))


def _whole_nodes(graphs: Graphs, steps: Steps) -> BoolArray:
    """Returns the nodes whose rows are all of the node's, in order: (nodes,) bool."""
    whole = np.zeros(len(steps.node_begin) - 1, np.bool_)
    if len(graphs.segments) > 1:
        return whole
    node = steps.node[steps.by_node]
    count = steps.count[steps.by_node]
    first_row = steps.begin[steps.by_node]
    used = where(count > 0)
    used = used[run_starts(node[used])]
    ranges = [graphs.segments[0].node_range(number) for number in node[used].tolist()]
    rows = np.diff(np.append(first_row[used], len(steps.cindex_ids)))
    shift = np.array([ids.start for ids in ranges]) - first_row[used]
    in_order = steps.cindex_ids - np.arange(len(steps.cindex_ids)) == np.repeat(shift, rows)
    complete = rows == [ids.stop - ids.start for ids in ranges]
    whole[node[used]] = np.logical_and.reduceat(in_order, first_row[used]) & complete
    return whole


def _leaf_ids(graphs: Graphs, node: int, cindex_ids: IntArray) -> list[IntArray]:
    """Returns which cindexes the leaves of each part of a descriptor take.

    Args:
        graphs: The graphs.
        node: The node of the descriptor.
        cindex_ids: (rows,) int32, some of its rows; -1 for padding.

    Returns:
        For each part (leaves, rows) int32; -1 for none.
    """
    ranges = [graph.node_range(node) for graph in graphs.segments]
    tables = [graphs.leaf_ids(segment, node) for segment in range(len(graphs.segments))]
    if len(ranges) == 1:
        columns = cindex_ids - ranges[0].start
        parts = list(tables[0])
    else:
        before = np.cumsum([0, *(ids.stop - ids.start for ids in ranges[:-1])])
        segment = np.searchsorted([ids.start for ids in ranges], cindex_ids, side="right") - 1
        shift = before - [ids.start for ids in ranges]
        columns = cindex_ids + shift[segment]
        parts = [np.concatenate(of_part, axis=1) for of_part in zip(*tables, strict=True)]
    padding = cindex_ids < 0
    if not padding.any():
        return [ids[:, columns] for ids in parts]
    columns[padding] = 0
    found = [ids[:, columns] for ids in parts]
    for ids in found:
        ids[:, padding] = NONE
    return found


class _PartRows(NamedTuple):
    """One part of a descriptor, for all rows of its steps.

    Attributes:
        pieces: Where its pieces go.
        own: (steps,) the steps, none of them empty.
        begin: (steps,) where each begins among the rows.
        part: The number of the part.
    """

    pieces: _Pieces
    steps: Steps
    step_of_cindex: IntArray
    own: IntArray
    begin: IntArray
    part: int

    def add(self, descriptor: SumDescriptor, ids: IntArray) -> None:
        """Adds the pieces of the part.

        Args:
            descriptor: The part.
            ids: (leaves, rows) int32, the cindexes that are taken; -1 for none.
        """
        if descriptor.has_constant:
            self._add_constants(descriptor, ids >= 0)
        for alpha, columns in self._by_scale(descriptor.leaves, ids):
            self._add_columns(alpha, columns)

    def _add_constants(self, descriptor: SumDescriptor, used: BoolArray) -> None:
        """Adds constants, as runs of rows with the same one; padding has none."""
        value = descriptor.constant_term(used)
        value[self.steps.cindex_ids[_rows(self.steps, self.own)] < 0] = 0.0
        is_first = run_starts(value)
        is_first[self.begin] = True
        runs = where(is_first)
        step = np.searchsorted(self.begin, runs, side="right") - 1
        counts = np.diff(np.append(runs, len(value)))
        for run, owner, count in zip(runs.tolist(), step.tolist(), counts.tolist(), strict=True):
            if value[run] != 0.0:
                first = run - int(self.begin[owner])
                place = int(self.own[owner]), self.part, first, count
                self.pieces.constants.append((*place, float(value[run])))

    def _by_scale(
        self, leaves: tuple[ForwardingDescriptor, ...], ids: IntArray
    ) -> list[tuple[float, IntArray]]:
        """Returns the columns of each scale: (columns, rows) int32."""
        indexes = self.steps.indexes[_rows(self.steps, self.own)]
        scales = [leaf.scale(indexes) for leaf in leaves]
        if all(isinstance(scale, float) and scale == scales[0] for scale in scales):
            return [(scale, ids) for scale in scales[:1] if isinstance(scale, float)]
        by_scale: dict[float, list[IntArray]] = {}
        for scale, column in zip(scales, ids, strict=True):
            if isinstance(scale, float):
                by_scale.setdefault(scale, []).append(column)
                continue
            for value in np.unique(scale[column >= 0]).tolist():
                by_scale.setdefault(value, []).append(np.where(scale == value, column, NONE))
        return [(scale, np.array(columns)) for scale, columns in by_scale.items()]

    def _add_columns(self, alpha: float, columns: IntArray) -> None:
        if len(columns) > 1:
            terms = np.maximum.reduceat((columns >= 0).sum(axis=0), self.begin)
            if (terms <= 1).all():
                columns = columns.max(axis=0, keepdims=True)
            else:
                columns = self._packed(columns)
        if len(columns) == 1:
            self.pieces.add(self.own, self.part, alpha, columns[0])
            return
        scattered = np.zeros(len(self.own), np.bool_)
        for column in columns if columns.shape[1] > len(self.own) else ():
            scattered |= self._is_scattered(column)
        for column in columns:
            if not scattered.any():
                self.pieces.add(self.own, self.part, alpha, column)
                continue
            kept = np.repeat(~scattered, np.diff(np.append(self.begin, columns.shape[1])))
            self.pieces.add(self.own[~scattered], self.part, alpha, column[kept])
        for number in where(scattered).tolist():
            begin = int(self.begin[number])
            end = begin + int(self.steps.count[self.own[number]])
            for column in arranged(columns[:, begin:end], self.step_of_cindex):
                self.pieces.add(self.own[number : number + 1], self.part, alpha, column)

    def _packed(self, columns: IntArray) -> IntArray:
        """Returns columns with the same terms in each row, fewer of them if there can be fewer.

        The forwarding descriptors in a Failover share the rows between them. A column with a term
        in each row stays. From the other columns, the first terms of all rows make one column, and
        the second terms make the next. But if all terms of a step come from one step, they must
        stay in one column.
        """
        is_partial = (columns < 0).any(axis=1)
        partial = columns[is_partial]
        count = int((partial >= 0).sum(axis=0).max(initial=0))
        if count >= int((partial >= 0).any(axis=1).sum()):
            return columns
        packed = np.sort(_none_last(partial), axis=0)[:count]
        packed[packed == _LAST] = NONE
        before, after = (
            np.array([self._is_scattered(column) for column in some]).any(axis=0)
            for some in (partial, packed)
        )
        return columns if (after > before).any() else np.concatenate([columns[~is_partial], packed])

    def _is_scattered(self, column: IntArray) -> BoolArray:
        """Returns for which steps the rows of a column come from several steps."""
        source = self.step_of_cindex[column]  # NONE for NONE
        last = np.maximum.reduceat(source, self.begin)
        first = np.minimum.reduceat(np.where(column >= 0, source, len(self.steps)), self.begin)
        return first < last


def _none_last(sources: IntArray) -> IntArray:
    """Returns sources with numbers that are larger than all others in place of NONE.

    If each row lists its terms in the order of their sources, one column holds terms at the same
    distance from their rows. Such a column has no source twice, so its derivative is one addition
    of rows.
    """
    return np.where(sources < 0, _LAST, sources)


def arranged(columns: IntArray, step_of: IntArray) -> list[IntArray]:
    """Returns columns with the same terms in each row that keep the rows of one step together.

    A step from which more than half of the rows take a term gets a column of its own. The remaining
    terms fill as few columns as possible.

    Args:
        columns: (columns, rows) int32, sources (rows or cindexes) or -1.
        step_of: The step of each source.

    Returns:
        Columns of (rows,) int32.
    """
    terms = columns.T.copy()
    result = []
    while (terms >= 0).any():
        step = np.where(terms >= 0, step_of[terms], NONE)
        found, counts = np.unique(step[step >= 0], return_counts=True)
        large = found[counts > terms.shape[0] // 2]
        if (terms >= 0).sum(axis=1).max() == 1 or not len(large):
            order = np.argsort(terms < 0, axis=1, kind="stable")
            packed = np.take_along_axis(terms, order, axis=1)
            result += [column for column in packed.T if (column >= 0).any()]
            break
        for source in large.tolist():
            matches = step == source
            place = np.where(matches, terms, _LAST).argmin(axis=1)
            rows = where(matches.any(axis=1))
            column = np.full(len(terms), NONE, np.int32)
            column[rows] = terms[rows, place[rows]]
            terms[rows, place[rows]] = NONE
            result.append(column)
    return result
