"""Input locations: from which rows each row of a descriptor's value is added up.

Every part of a descriptor (they are appended column-wise) is a sum of scaled rows of other steps.
It is held as *columns*: a column gives each row at most one source row. The columns of a part are
at first its forwarding descriptors; `_arranged` changes them so that as far as possible all rows of
a column come from one step, because then one command on one matrix does it.
"""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_descriptors.descriptors import ForwardingDescriptor, SumDescriptor
from numpy.typing import NDArray

from nnet3_compiler.arrays import NONE, IntArray, run_starts
from nnet3_compiler.steps.graphs import Graphs
from nnet3_compiler.steps.network import Network
from nnet3_compiler.steps.steps import Steps

BoolArray = NDArray[np.bool_]


@attrs.frozen(kw_only=True, eq=False)
class InputLocations:
    """The sums that make the parts of all descriptors, as pieces: one column of one step.

    Attributes:
        step: (P,) int32, the step whose rows are computed.
        part: (P,) int32, the part of its descriptor.
        alpha: (P,) float32, the scale of the source rows.
        begin: (P,) int64, where the piece begins in `source`.
        source: (total,) int32, the source row of each row of each piece (numbered as in `Steps`),
            or -1 for none.
        constant_step: (C,) int32, a step, in a part of which a constant is added ...
        constant_part: (C,) int32, ... the part, ...
        constant_rows: (C, 2) int32, ... the first row in the step and the number of rows, ...
        constant: (C,) float32, ... and the constant.
    """

    step: IntArray
    part: IntArray
    alpha: NDArray[np.float32]
    begin: NDArray[np.int64]
    source: IntArray
    constant_step: IntArray
    constant_part: IntArray
    constant_rows: IntArray
    constant: NDArray[np.float32]


@attrs.define(eq=False)
class _Pieces:
    """Pieces that are still being collected."""

    step: list[NDArray[np.int32]] = attrs.Factory(list)
    part: list[int] = attrs.Factory(list)
    alpha: list[float] = attrs.Factory(list)
    source: list[NDArray[np.int32]] = attrs.Factory(list)
    constants: list[tuple[int, int, int, int, float]] = attrs.Factory(list)

    def add(self, steps: IntArray, part: int, alpha: float, source: IntArray) -> None:
        """Adds one column of some steps, whose rows follow one another in `source`."""
        self.step.append(steps)
        self.part.append(part)
        self.alpha.append(alpha)
        self.source.append(source)

    def finish(self, steps: Steps) -> InputLocations:
        """Returns all pieces, in the order of their steps and parts."""
        step = np.concatenate([*self.step, np.zeros(0, np.int32)]).astype(np.int32)
        sizes = [len(piece) for piece in self.step]
        count = steps.count[step].astype(np.int64)
        constants = np.array([row[:4] for row in self.constants], np.int32).reshape(-1, 4)
        return InputLocations(
            step=step,
            part=np.repeat(np.array(self.part, np.int32), sizes),
            alpha=np.repeat(np.array(self.alpha, np.float32), sizes),
            begin=np.cumsum(count) - count,
            source=np.concatenate([*self.source, np.zeros(0, np.int32)]).astype(np.int32),
            constant_step=constants[:, 0],
            constant_part=constants[:, 1],
            constant_rows=constants[:, 2:],
            constant=np.array([row[4] for row in self.constants], np.float32),
        )


def input_locations(network: Network, graphs: Graphs, steps: Steps) -> InputLocations:
    """Returns the input locations of all steps of component-input and output nodes."""
    pieces = _Pieces()
    step_of_row = steps.step_of_row
    for node, descriptor in enumerate(network.descriptors):
        if descriptor is None:
            continue
        own = steps.by_node[steps.node_begin[node] : steps.node_begin[node + 1]]
        if not (count := steps.count[own]).all():
            own = own[count > 0]
        if not len(own):
            continue
        first = int(steps.begin[own[0]])
        last = int(steps.begin[own[-1]] + steps.count[own[-1]])
        rows = _Rows(
            steps=steps,
            step_of_row=step_of_row,
            own=own,
            begin=steps.begin[own] - first,
            rows=slice(first, last),
            sources=_leaf_ids(graphs, node, steps.cindex_ids[first:last]),
        )
        for part, sum_descriptor in enumerate(descriptor.parts):
            rows.add_part(pieces, part, sum_descriptor)
    return pieces.finish(steps)


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
    tables = [graph.leaf_ids(node) for graph in graphs.segments]
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


@attrs.frozen(kw_only=True, eq=False)
class _Rows:
    """All rows of one descriptor's steps.

    Attributes:
        own: (steps,) the steps, none of them empty.
        begin: (steps,) where each begins in `rows`.
        rows: The rows.
        sources: For each part (leaves, rows) int32, the cindex ids that are taken; -1 for none.
    """

    steps: Steps
    step_of_row: IntArray
    own: IntArray
    begin: IntArray
    rows: slice
    sources: list[IntArray]

    def add_part(self, pieces: _Pieces, part: int, descriptor: SumDescriptor) -> None:
        """Adds the pieces of one part."""
        source = self.steps.row_of_cindex[self.sources[part]]
        if descriptor.constant != 0.0 or descriptor.has_optional_constant:
            self._add_constants(pieces, part, descriptor, source >= 0)
        for alpha, columns in self._by_scale(descriptor.leaves, source):
            self._add_columns(pieces, part, alpha, columns)

    def _add_constants(
        self, pieces: _Pieces, part: int, descriptor: SumDescriptor, used: BoolArray
    ) -> None:
        """Adds constants, as runs of rows with the same one; padding has none."""
        value = descriptor.constant_term(used)
        value[self.steps.cindex_ids[self.rows] < 0] = 0.0
        is_first = run_starts(value)
        is_first[self.begin] = True
        runs = np.flatnonzero(is_first)
        step = np.searchsorted(self.begin, runs, side="right") - 1
        counts = np.diff(np.append(runs, len(value)))
        for run, owner, count in zip(runs.tolist(), step.tolist(), counts.tolist(), strict=True):
            if value[run] != 0.0:
                first = run - int(self.begin[owner])
                constant = float(value[run])
                pieces.constants.append((int(self.own[owner]), part, first, count, constant))

    def _by_scale(
        self, leaves: tuple[ForwardingDescriptor, ...], source: IntArray
    ) -> list[tuple[float, IntArray]]:
        """Returns the columns of each scale: (columns, rows) int32."""
        if len(leaves) == 1 and isinstance(scale := self._scale(leaves[0]), float):
            return [(scale, source)]
        by_scale: dict[float, list[IntArray]] = {}
        for leaf, column in zip(leaves, source, strict=True):
            scales = self._scale(leaf)
            if isinstance(scales, float):
                by_scale.setdefault(scales, []).append(column)
                continue
            for scale in np.unique(scales[column >= 0]).tolist():
                by_scale.setdefault(scale, []).append(np.where(scales == scale, column, NONE))
        return [(scale, np.array(columns)) for scale, columns in by_scale.items()]

    def _scale(self, leaf: ForwardingDescriptor) -> float | NDArray[np.float32]:
        return leaf.scale(self.steps.indexes[self.rows])

    def _add_columns(self, pieces: _Pieces, part: int, alpha: float, columns: IntArray) -> None:
        if len(columns) > 1:
            terms = np.maximum.reduceat((columns >= 0).sum(axis=0), self.begin)
            if (terms <= 1).all():
                columns = columns.max(axis=0, keepdims=True)
        if len(columns) == 1:
            pieces.add(self.own, part, alpha, columns[0])
            return
        scattered = np.zeros(len(self.own), np.bool_)
        for column in columns:
            scattered |= self._is_scattered(column)
        for column in columns:
            if not scattered.any():
                pieces.add(self.own, part, alpha, column)
                continue
            kept = np.repeat(~scattered, np.diff(np.append(self.begin, columns.shape[1])))
            pieces.add(self.own[~scattered], part, alpha, column[kept])
        for number in np.flatnonzero(scattered).tolist():
            begin = int(self.begin[number])
            end = begin + int(self.steps.count[self.own[number]])
            for column in arranged(columns[:, begin:end], self.step_of_row):
                pieces.add(self.own[number : number + 1], part, alpha, column)

    def _is_scattered(self, column: IntArray) -> BoolArray:
        """Returns for which steps the rows of a column come from several steps."""
        source = np.where(column >= 0, self.step_of_row[column], NONE)
        last = np.maximum.reduceat(source, self.begin)
        first = np.minimum.reduceat(np.where(column >= 0, source, len(self.steps)), self.begin)
        return first < last


def arranged(columns: IntArray, step_of_row: IntArray) -> list[IntArray]:
    """Returns columns with the same terms in each row that keep the rows of one step together.

    A step from which more than half of the rows take a term gets a column of its own. What is left
    fills as few columns as possible.

    Args:
        columns: (columns, rows) int32, source rows or -1.
        step_of_row: The step of each source row.

    Returns:
        Columns of (rows,) int32.
    """
    terms = columns.T.copy()
    result = []
    while (terms >= 0).any():
        step = np.where(terms >= 0, step_of_row[terms], NONE)
        found, counts = np.unique(step[step >= 0], return_counts=True)
        large = found[counts > terms.shape[0] // 2]
        if (terms >= 0).sum(axis=1).max() == 1 or not len(large):
            order = np.argsort(terms < 0, axis=1, kind="stable")
            packed = np.take_along_axis(terms, order, axis=1)
            result += [column for column in packed.T if (column >= 0).any()]
            break
        for source in large.tolist():
            matches = step == source
            place = matches.argmax(axis=1)
            rows = np.flatnonzero(matches.any(axis=1))
            column = np.full(len(terms), NONE, np.int32)
            column[rows] = terms[rows, place[rows]]
            terms[rows, place[rows]] = NONE
            result.append(column)
    return result
