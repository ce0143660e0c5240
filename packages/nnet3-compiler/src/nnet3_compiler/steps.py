"""Steps: which rows are computed together.

A step is a matrix: rows of one node, all computed by one command or a few. The rows of a phase that
belong to one node make a step, with these rules:

(a) an input or output of the request is one step, its rows in the order of the request;
(b) a step of a component node directly follows the step of its input, with the rows that the
    component wants, in the order that it wants (`Component.reorder_indexes`);
(c) a step of a dim-range node has the rows of a whole step of its source, so that it can be a
    range of that matrix's columns. This adds cindexes that the graph does not have.

Everything is done for all steps at once: a Python loop runs only over inputs, outputs and the steps
of components whose output rows do not need just the same rows of the input.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from nnet3_descriptors.components.properties import ComponentProperties
from nnet3_graph import ComputationRequest, IoSpecification
from numpy.typing import NDArray

from nnet3_compiler.arrays import IntArray, expand_ranges, run_starts
from nnet3_compiler.errors import CompilationError
from nnet3_compiler.graphs import Graphs
from nnet3_compiler.network import Network, NodeKind
from nnet3_compiler.phases import GIVEN, Phases
from nnet3_compiler.shortcut import Minibatch

NONE = -1


@attrs.frozen(kw_only=True, eq=False)
class Steps:
    """The steps of a computation, in the order in which they are computed.

    Rows of all steps are numbered through: first those of node 0, its steps in order, then those
    of node 1, and so on. If the request was reduced to one sequence, so are the rows.

    Attributes:
        node: (S,) int32.
        segment: (S,) int32, the request that it belongs to.
        begin: (S,) int32, the number of its first row.
        count: (S,) int32, how many rows it has; 0 for a component that needs no input.
        block: (S,) int32, the order of rows of several sequences; see `shortcut`.
        source: (S,) int32, the step of which it is a range of columns, or -1.
        is_given: (S,) bool, whether the user gives its value.
        indexes: (rows, 3) int32, columns n, t, x; padding has t = NO_TIME.
        cindex_ids: (rows,) int32; -1 for rows that the graph does not have.
        row_of_cindex: (cindexes + 1,) int32, the row of each cindex id; -1 for the last, so that
            looking up the id -1 (absent) gives -1.
        by_node: (S,) int32, the steps in the order of their rows.
        node_begin: (nodes + 1,) int32, where the steps of each node begin in `by_node`.
    """

    node: IntArray
    segment: IntArray
    begin: IntArray
    count: IntArray
    block: IntArray
    source: IntArray
    is_given: NDArray[np.bool_]
    indexes: IntArray
    cindex_ids: IntArray
    row_of_cindex: IntArray
    by_node: IntArray
    node_begin: IntArray

    def __len__(self) -> int:
        return len(self.node)

    @property
    def step_of_row(self) -> IntArray:
        """The step of each row: (rows,) int32."""
        return np.repeat(self.by_node, self.count[self.by_node])

    def rows_of(self, step: int) -> slice:
        """Returns the rows of a step."""
        return slice(int(self.begin[step]), int(self.begin[step] + self.count[step]))

    def cindexes_by_node(self, num_nodes: int) -> IntArray:
        """Returns how many different cindexes the steps of each node have: (nodes,) int32."""
        node = np.repeat(self.node[self.by_node], self.count[self.by_node])
        rows = np.unique(np.column_stack([node, self.indexes]), axis=0)
        return np.bincount(rows[:, 0], minlength=num_nodes).astype(np.int32)


@attrs.define(eq=False)
class _Draft:
    """Steps in any order. Their rows are ranges of a pool of rows.

    Attributes:
        pool: Cindex ids, as pieces; the first piece are all ids in order.
        pool_size: Number of rows in the pool.
        padding: Rows of the pool that the graph lacks: where they are, and their indexes.
        columns: The steps, as pieces of shape (steps, len(_COLUMNS)).
    """

    pool: list[IntArray]
    pool_size: int
    padding: list[tuple[NDArray[np.int64], IntArray]] = attrs.Factory(list)
    columns: list[list[tuple[int, ...]] | NDArray[np.int64]] = attrs.Factory(list)

    def add_rows(self, ids: IntArray, indexes: IntArray | None = None) -> int:
        """Adds rows; returns where they begin.

        Args:
            ids: (rows,) int32; -1 for rows that the graph does not have.
            indexes: (rows, 3) int32, needed if there are such rows.
        """
        begin = self.pool_size
        self.pool.append(ids)
        self.pool_size += len(ids)
        if indexes is not None and len(absent := np.flatnonzero(ids < 0)):
            self.padding.append((absent + begin, indexes[absent]))
        return begin

    def add_step(
        self,
        phase: int,
        place: int,
        node: int,
        segment: int,
        begin: int,
        count: int,
        *,
        block: int = 1,
        is_given: bool = False,
    ) -> None:
        """Adds one step."""
        if not self.columns or not isinstance(self.columns[-1], list):
            self.columns.append([])
        row = (phase, place, node, segment, begin, count, block, NONE, int(is_given))
        self.columns[-1].append(row)  # type: ignore[union-attr]

    def add_steps(self, **columns: NDArray[np.int64] | int) -> None:
        """Adds steps by their columns; a number stands for all of them."""
        arrays = np.broadcast_arrays(*(np.atleast_1d(columns[name]) for name in _COLUMNS))
        self.columns.append(np.stack(arrays, axis=1))

    def table(self) -> dict[str, NDArray[np.int64]]:
        """Returns all steps so far, by column."""
        whole = np.concatenate([np.array(piece, np.int64) for piece in self.columns])
        self.columns = [whole]
        return dict(zip(_COLUMNS, whole.T, strict=True))


_COLUMNS = ("phase", "place", "node", "segment", "begin", "count", "block", "source", "is_given")
"""What is known of a draft step; place orders the steps of a phase and node, source is a draft
step."""


@attrs.frozen(kw_only=True, eq=False)
class StepsBuilder:
    """Makes the steps of a computation; see `build`.

    Attributes:
        network: The network.
        graphs: The pruned graphs of the segments.
        phases: The phases of their cindexes.
        requests: The request of each segment (reduced to one sequence, if it was).
        minibatch: The sequences that the rows stand for.
        blocks: The order of rows of each input and output, by name.
    """

    network: Network
    graphs: Graphs
    phases: Phases
    requests: Sequence[ComputationRequest]
    minibatch: Minibatch
    blocks: Mapping[str, int]

    def build(self) -> Steps:
        """Returns the steps, in order."""
        size = self.graphs.size
        draft = _Draft(pool=[np.arange(size, dtype=np.int32)], pool_size=size)
        components = np.flatnonzero(self.network.kind == NodeKind.COMPONENT).tolist()
        for segment, request in enumerate(self.requests):
            for io in request.inputs:
                self._add_io(draft, io, segment, is_given=True)
            for io in request.outputs:
                self._add_io(draft, io, segment, is_given=False)
            for node in components:
                self._add_component(draft, node, segment)
        self._add_dim_ranges(draft)
        return self._ordered(draft)

    # -- rule (a) ------------------------------------------------------------------------------

    def _add_io(self, draft: _Draft, io: IoSpecification, segment: int, *, is_given: bool) -> None:
        node = self.network.nnet.node_index(io.name)
        epoch = GIVEN if is_given else int(self.phases.epochs.of_node[node])
        ids = self.graphs.segments[segment].cindex_ids(node, io.indexes)
        begin = draft.add_rows(ids, io.indexes)
        draft.add_step(
            self.phases.number(segment, epoch),
            0,
            node,
            segment,
            begin,
            len(ids),
            block=self.blocks.get(io.name, 1),
            is_given=is_given,
        )

    # -- rule (b) ------------------------------------------------------------------------------

    def _add_component(self, draft: _Draft, node: int, segment: int) -> None:
        graph = self.graphs.segments[segment]
        computed = self.graphs.computed(segment, node)
        first_phase = self.phases.number(segment, int(self.phases.epochs.of_node[node]))
        splits, used = graph.component_inputs(node)
        is_whole = isinstance(computed, slice) and not self.phases.epochs.is_recurrent[node]
        is_rowwise = self._is_rowwise(node, computed, used)
        ids = np.arange(computed.start, computed.stop) if isinstance(computed, slice) else computed
        if not len(ids):
            return
        if is_rowwise and is_whole:
            for place, begin in enumerate((int(used[0]), int(ids[0]))):
                draft.add_step(first_phase, place, node - 1 + place, segment, begin, len(ids))
            return
        level = self.phases.level[ids]
        order = np.argsort(level, kind="stable")
        level = level[order]
        ids = ids[order].astype(np.int32)
        group_begin = np.flatnonzero(run_starts(level))
        count = np.diff(np.append(group_begin, len(ids)))
        first = graph.node_range(node).start
        if not is_rowwise:
            for begin, end in itertools.pairwise([*group_begin.tolist(), len(ids)]):
                inputs = _distinct_members(splits, used, ids[begin:end] - first)
                phase = first_phase + int(level[begin])
                self._add_general_component(draft, node, segment, phase, inputs, ids[begin:end])
            return
        for place, rows in enumerate((used[splits[ids - first]], ids)):
            draft.add_steps(
                phase=first_phase + level[group_begin],
                place=place,
                node=node - 1 + place,
                segment=segment,
                begin=group_begin + draft.add_rows(rows),
                count=count,
                block=1,
                source=NONE,
                is_given=0,
            )

    def _is_rowwise(
        self,
        node: int,
        computed: IntArray | slice,
        used: IntArray,
    ) -> bool:
        """Whether each row of a component node needs the same row of the input and no other."""
        properties = ComponentProperties(int(self.network.properties[node]))
        if properties & ComponentProperties.SIMPLE:
            return True
        if properties & ComponentProperties.REORDERS_INDEXES:
            return False
        cindexes = self.graphs.cindexes
        return np.array_equal(cindexes[used, 1:], cindexes[computed, 1:])

    def _add_general_component(
        self,
        draft: _Draft,
        node: int,
        segment: int,
        phase: int,
        input_ids: IntArray,
        output_ids: IntArray,
    ) -> None:
        """Adds the two steps of a component that needs other rows of the input."""
        graph, cindexes = self.graphs.segments[segment], self.graphs.cindexes
        inputs, outputs = cindexes[input_ids, 1:], cindexes[output_ids, 1:]
        input_block = output_block = 1
        if self.network.properties[node] & int(ComponentProperties.REORDERS_INDEXES):
            inputs, outputs, input_block, output_block = self._reordered(node, inputs, outputs)
            input_ids = graph.cindex_ids(node - 1, inputs)
            output_ids = graph.cindex_ids(node, outputs)
        begin, count = draft.add_rows(input_ids, inputs), len(input_ids)
        draft.add_step(phase, 0, node - 1, segment, begin, count, block=input_block)
        begin, count = draft.add_rows(output_ids, outputs), len(output_ids)
        draft.add_step(phase, 1, node, segment, begin, count, block=output_block)

    def _reordered(
        self, node: int, inputs: IntArray, outputs: IntArray
    ) -> tuple[IntArray, IntArray, int, int]:
        """Lets a component reorder and pad its rows; returns patterns and their blocks.

        How it orders the rows of several sequences is seen from the first two.
        """
        component = self.network.nnet.components[int(self.network.component[node])]
        pair = Minibatch(sequences=self.minibatch.sequences[:2])
        reordered = component.reorder_indexes(pair.indexes(inputs, 1), pair.indexes(outputs, 1))
        if pair.size == 1:
            return (*reordered, 1, 1)
        of_input, of_output = (pair.first_of(indexes) for indexes in reordered)
        if of_input is None or of_output is None:
            name = self.network.nnet.nodes[node].name
            raise IrregularOrderError(f"node '{name}' mixes the rows of sequences irregularly")
        return of_input[0], of_output[0], of_input[1], of_output[1]

    # -- rule (c) ------------------------------------------------------------------------------

    def _add_dim_ranges(self, draft: _Draft) -> None:
        """Adds the steps of dim-range nodes, after those of all their sources."""
        pieces = [
            self._dim_range_rows(segment, node)
            for segment in range(len(self.requests))
            for node in np.flatnonzero(self.network.kind == NodeKind.DIM_RANGE).tolist()
        ]
        if not pieces:
            return
        ids, source_ids, node, phase = map(np.concatenate, zip(*pieces, strict=True))
        steps, pool = draft.table(), np.concatenate(draft.pool)
        step_of_id, row_of_id = self._places(steps, pool)
        source = step_of_id[source_ids]
        # one step for each node and step of its source, in the phase that first needs it
        order = np.argsort(phase, kind="stable")
        pair = node * len(steps["node"]) + source
        _, first, which = np.unique(pair[order], return_index=True, return_inverse=True)
        node, source_of_step, phase = (column[order[first]] for column in (node, source, phase))
        count = steps["count"][source_of_step]
        begin = np.cumsum(count) - count
        step_ids = np.full(int(count.sum()), NONE, np.int32)
        step_ids[begin[which] + row_of_id[source_ids[order]]] = ids[order]
        places = expand_ranges(steps["begin"][source_of_step], count)
        indexes = self._indexes(draft, pool[places], places)
        draft.add_steps(
            phase=phase,
            place=source_of_step,
            node=node,
            segment=steps["segment"][source_of_step],
            begin=begin + draft.add_rows(step_ids, indexes),
            count=count,
            block=steps["block"][source_of_step],
            source=source_of_step,
            is_given=0,
        )

    def _dim_range_rows(self, segment: int, node: int) -> tuple[NDArray[np.int64], ...]:
        """Returns the rows of a dim-range node: ids, ids of the source, node, phase."""
        graph = self.graphs.segments[segment]
        ids = np.arange(graph.node_range(node).start, graph.node_range(node).stop)
        source_ids = graph.moved_ids(int(self.network.source[node]), node, 0, 0)
        first_phase = self.phases.number(segment, int(self.phases.epochs.of_node[node]))
        phase = first_phase + self.phases.level[ids]
        return ids, source_ids.astype(np.int64), np.full(len(ids), node), phase

    def _places(
        self, steps: dict[str, NDArray[np.int64]], pool: IntArray
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the draft step and the row in it of each cindex id that can be a source."""
        step_of_id = np.full(self.graphs.size, NONE, np.int64)
        row_of_id = np.full(self.graphs.size, NONE, np.int64)
        places = expand_ranges(steps["begin"], steps["count"])
        ids = pool[places]
        step = np.repeat(np.arange(len(steps["count"])), steps["count"])
        row = places - steps["begin"][step]
        present = ids >= 0
        step_of_id[ids[present]] = step[present]
        row_of_id[ids[present]] = row[present]
        return step_of_id, row_of_id

    # -- common --------------------------------------------------------------------------------

    def _indexes(self, draft: _Draft, ids: IntArray, places: NDArray[np.int64]) -> IntArray:
        """Returns the indexes of rows of the pool."""
        indexes = self.graphs.cindexes[ids, 1:]
        if draft.padding:
            stored = np.full(draft.pool_size, NONE, np.int64)
            padded = np.concatenate([piece[0] for piece in draft.padding])
            stored[padded] = np.arange(len(padded))
            absent = np.flatnonzero(stored[places] >= 0)
            padding = np.concatenate([piece[1] for piece in draft.padding])
            indexes[absent] = padding[stored[places[absent]]]
        return indexes

    def _ordered(self, draft: _Draft) -> Steps:
        """Returns the draft steps in order, their rows numbered through."""
        table = draft.table()
        kind_of_node = self.network.kind
        component_node = table["node"] + (kind_of_node[table["node"]] == NodeKind.COMPONENT_INPUT)
        order = np.lexsort((table["place"], component_node, table["phase"]))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        table = {name: column[order] for name, column in table.items()}
        node, count = table["node"], table["count"]
        by_node = np.argsort(node, kind="stable")
        places = expand_ranges(table["begin"][by_node], count[by_node])
        cindex_ids = np.concatenate(draft.pool)[places]
        begin = np.empty(len(order), np.int64)
        begin[by_node] = np.cumsum(count[by_node]) - count[by_node]
        row_of_cindex = np.full(self.graphs.size + 1, NONE, np.int32)
        row_of_cindex[cindex_ids] = np.arange(len(cindex_ids))
        row_of_cindex[NONE] = NONE
        source = table["source"]
        int32 = np.int32
        return Steps(
            node=node.astype(int32),
            segment=table["segment"].astype(int32),
            begin=begin.astype(int32),
            count=count.astype(int32),
            block=table["block"].astype(int32),
            source=np.where(source >= 0, rank[source], NONE).astype(int32),
            is_given=table["is_given"] > 0,
            indexes=self._indexes(draft, cindex_ids, places),
            cindex_ids=cindex_ids,
            row_of_cindex=row_of_cindex,
            by_node=by_node.astype(int32),
            node_begin=np.searchsorted(node[by_node], np.arange(len(kind_of_node) + 1)).astype(
                int32
            ),
        )


def _distinct_members(
    splits: NDArray[np.int64], values: IntArray, rows: NDArray[np.int64]
) -> IntArray:
    """Returns the different values of some rows of a CSR table, ascending: int32."""
    begin = splits[rows]
    members = np.sort(values[expand_ranges(begin, splits[rows + 1] - begin)])
    distinct: IntArray = members[run_starts(members)].astype(np.int32)
    return distinct


class IrregularOrderError(CompilationError):
    """A component orders the rows of several sequences so that no pattern describes them."""
