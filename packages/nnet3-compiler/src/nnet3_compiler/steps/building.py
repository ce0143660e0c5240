"""Steps: the rows that are computed together.

A step is a matrix: rows of one node, all computed by one command or a few. The rows of a phase that
belong to one node make a step, with these rules:

(a) an input or output of the request is one step, its rows in the order of the request;
(b) a step of a component node directly follows the step of its input, with the rows that the
    component wants, in the order that it wants (`Component.reorder_indexes`);
(c) a step of a dim-range node has the rows of a whole step of its source, so that it can be a
    range of that matrix's columns. This adds cindexes that the graph does not have.

The steps of a component in a recurrence are made all at once, unless its output rows read input
rows at other positions.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import attrs
import numpy as np
from nnet3_computation import IoSpecification, arrays
from nnet3_computation.arrays import NONE, IntArray, expand_ranges, where
from nnet3_descriptors.components import ComponentProperties
from nnet3_descriptors.indexes import distinct, index_order
from nnet3_descriptors.values import frozen
from numpy.typing import NDArray

from nnet3_compiler import errors, shortcut
from nnet3_compiler.steps.network import GIVEN, Graphs, Network, NodeKind, Phases

Ids = IntArray | slice
"""Cindex ids: an array, or a range of them."""

COLUMNS = ("phase", "place", "node", "segment", "begin", "count", "block", "source", "is_given")
"""The columns of a step: place orders the steps of a phase and node; begin and count are its
rows in the pool; source is another of these steps; the others are as in `Steps`."""


class UnorderedSteps:
    """Steps whose rows are ranges of a pool of rows.

    Attributes:
        cindexes: (cindexes, 4) int32, all cindexes of the graphs.
        pool: Cindex ids, as pieces; the first piece are all ids in order.
        pool_size: Number of rows in the pool.
        padding: Rows of the pool that the graphs lack: where they are, and their indexes.
        pieces: The steps, as pieces of shape (steps, len(COLUMNS)).
    """

    def __init__(self, cindexes: IntArray) -> None:
        """Begins with the rows of all cindexes in the pool."""
        self.cindexes = cindexes
        self.pool = [np.arange(len(cindexes), dtype=np.int32)]
        self.pool_size = len(cindexes)
        self.padding: list[tuple[NDArray[np.int64], IntArray]] = []
        self.pieces: list[list[tuple[int, ...]] | NDArray[np.int64]] = []

    def add_rows(self, ids: IntArray, indexes: IntArray | None = None) -> int:
        """Adds rows to the pool; returns where they begin.

        Args:
            ids: (rows,) int32; -1 for rows that the graphs do not have.
            indexes: (rows, 3) int32, needed if there are such rows.
        """
        begin = self.pool_size
        self.pool.append(ids)
        self.pool_size += len(ids)
        if indexes is not None and len(absent := where(ids < 0)):
            self.padding.append((absent + begin, indexes[absent]))
        return begin

    def add_step(
        self,
        phase: int,
        place: int,
        node: int,
        segment: int,
        ids: Ids,
        *,
        indexes: IntArray | None = None,
        block: int = 1,
        is_given: bool = False,
    ) -> None:
        """Adds one step; `indexes` are the indexes of its rows, needed if some ids are -1."""
        if isinstance(ids, slice):
            begin, count = ids.start, ids.stop - ids.start
        else:
            begin, count = self.add_rows(ids, indexes), len(ids)
        if not self.pieces or not isinstance(self.pieces[-1], list):
            self.pieces.append([])
        row = (phase, place, node, segment, begin, count, block, NONE, int(is_given))
        self.pieces[-1].append(row)  # type: ignore[union-attr]

    def add_steps(self, **columns: NDArray[np.int64] | IntArray | int) -> None:
        """Adds steps by their columns; except for `begin`, a number is the value of all of them."""
        piece = np.empty((np.size(columns["begin"]), len(COLUMNS)), np.int64)
        for number, name in enumerate(COLUMNS):
            piece[:, number] = columns[name]
        self.pieces.append(piece)

    def table(self) -> dict[str, NDArray[np.int64]]:
        """Returns all steps so far, by column."""
        whole = np.concatenate([np.array(piece, np.int64) for piece in self.pieces])
        self.pieces = [whole]
        return dict(zip(COLUMNS, whole.T, strict=True))

    def ids_at(self, places: NDArray[np.int64]) -> IntArray:
        """Returns the cindex ids of rows of the pool."""
        if len(self.pool) > 1:
            self.pool = [np.concatenate(self.pool)]
        return self.pool[0][places]

    def indexes_at(self, places: NDArray[np.int64]) -> IntArray:
        """Returns the indexes of rows of the pool: (rows, 3) int32."""
        return self.cindexes_at(self.ids_at(places), places)[:, 1:]

    def cindexes_at(self, ids: IntArray, places: NDArray[np.int64]) -> IntArray:
        """Returns the cindexes of rows of the pool.

        Args:
            ids: (rows,) their cindex ids.
            places: (rows,) where they are in the pool.

        Returns:
            (rows, 4) int32; for rows that the graphs lack the node is arbitrary.
        """
        cindexes = self.cindexes.take(ids, axis=0)
        if self.padding:
            stored = np.full(self.pool_size, NONE, np.int64)
            padded = np.concatenate([piece[0] for piece in self.padding])
            stored[padded] = np.arange(len(padded))
            absent = where(stored[places] >= 0)
            padding = np.concatenate([piece[1] for piece in self.padding])
            cindexes[absent, 1:] = padding[stored[places[absent]]]
        return cindexes

    def ordered(self, network: Network) -> dict[str, NDArray[np.int64]]:
        """Returns the steps in the order of phase, node and place; `source` is renumbered."""
        table = self.table()
        is_input = network.kind[table["node"]] == NodeKind.COMPONENT_INPUT
        order = np.lexsort((table["place"], table["node"] + is_input, table["phase"]))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        table = {name: column[order] for name, column in table.items()}
        source = table["source"]
        table["source"] = np.where(source >= 0, rank[source], NONE)
        return table

    def places_of_ids(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the step of each cindex id and its row in it; -1 if it is in none."""
        steps = self.table()
        places = expand_ranges(steps["begin"], steps["count"])
        step = np.repeat(np.arange(len(steps["count"])), steps["count"])
        ids = self.ids_at(places)
        present = ids >= 0
        step_of_id = np.full(len(self.cindexes), NONE, np.int64)
        row_of_id = np.full(len(self.cindexes), NONE, np.int64)
        step_of_id[ids[present]] = step[present]
        row_of_id[ids[present]] = (places - steps["begin"][step])[present]
        return step_of_id, row_of_id


@attrs.frozen(kw_only=True, eq=False)
class Steps:
    """The steps of a computation, in the order in which they are computed.

    The rows of all steps have consecutive numbers: first the rows of node 0, its steps in order,
    then the rows of node 1, and so on. If the request was reduced to one sequence, so are the rows.

    Attributes:
        node: (S,) int32.
        segment: (S,) int32, the request that it belongs to.
        begin: (S,) int32, the number of its first row.
        count: (S,) int32, its number of rows; 0 for a component that needs no input.
        block: (S,) int32, the order of rows of several sequences; see `shortcut`.
        source: (S,) int32, the step whose columns it is a range of, or -1.
        is_given: (S,) bool, whether the user gives its value.
        cindexes: (rows, 4) int32, columns node, n, t, x; padding has t = NO_TIME.
        cindex_ids: (rows,) int32; -1 for rows that the graph does not have.
        row_of_cindex: (cindexes + 1,) int32, the row of each cindex id. The last entry is -1, so
            that the id -1 (absent) finds -1.
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
    cindexes: IntArray
    cindex_ids: IntArray
    row_of_cindex: IntArray
    by_node: IntArray
    node_begin: IntArray

    def __len__(self) -> int:
        return len(self.node)

    @property
    def indexes(self) -> IntArray:
        """The index of each row: (rows, 3) int32, columns n, t, x."""
        return self.cindexes[:, 1:]

    @cached_property
    def step_of_row(self) -> IntArray:
        """The step of each row: (rows,) int32."""
        return np.repeat(self.by_node, self.count[self.by_node])

    @cached_property
    def step_of_cindex(self) -> IntArray:
        """The step of each cindex: (cindexes + 1,) int32; the last is -1, as in `row_of_cindex`."""
        step_of_row = np.append(self.step_of_row, np.int32(NONE))
        return step_of_row[self.row_of_cindex]

    def rows_of(self, step: int) -> slice:
        """Returns the rows of a step."""
        return slice(int(self.begin[step]), int(self.begin[step] + self.count[step]))


class StepsBuilder:
    """Makes the steps of a computation; see `build`."""

    def __init__(
        self, network: Network, graphs: Graphs, phases: Phases, reduced: shortcut.Reduced
    ) -> None:
        """Prepares to make steps.

        Args:
            network: The network.
            graphs: The pruned graphs of the segments.
            phases: The phases of their cindexes.
            reduced: The request of each segment, reduced to one sequence or not.
        """
        self.network = network
        self.graphs = graphs
        self.phases = phases
        self.reduced = reduced
        self._unordered = UnorderedSteps(graphs.cindexes)

    def build(self) -> Steps:
        """Returns the steps, in order."""
        components = arrays.where(self.network.kind == NodeKind.COMPONENT).tolist()
        for segment, request in enumerate(self.reduced.requests):
            for io in request.inputs:
                self._add_io(io, segment, is_given=True)
            for io in request.outputs:
                self._add_io(io, segment, is_given=False)
            for node in components:
                self._add_component(node, segment)
        self._add_dim_ranges()
        return self._numbered()

    def _first_phase(self, segment: int, node: int) -> int:
        """Returns the phase of the cindexes of a node that have level 0."""
        return self.phases.number(segment, int(self.phases.epochs.of_node[node]))

    # -- rule (a) ------------------------------------------------------------------------------

    def _add_io(self, io: IoSpecification, segment: int, *, is_given: bool) -> None:
        node = self.network.nnet.node_index(io.name)
        self._unordered.add_step(
            self.phases.number(segment, GIVEN) if is_given else self._first_phase(segment, node),
            0,
            node,
            segment,
            self.graphs.segments[segment].cindex_ids(node, io.indexes),
            indexes=io.indexes,
            block=self.reduced.blocks[segment].get(io.name, 1),
            is_given=is_given,
        )

    # -- rule (b) ------------------------------------------------------------------------------

    def _add_component(self, node: int, segment: int) -> None:
        outputs = self.graphs.computed(segment, node)
        if not (outputs.stop - outputs.start if isinstance(outputs, slice) else len(outputs)):
            return
        if self.phases.epochs.is_recurrent[node]:
            self._add_recurrent_component(node, segment, outputs)
            return
        graph = self.graphs.segments[segment]
        inputs: Ids = graph.node_range(node - 1)
        if graph.previous is not None:
            inputs = self._ascending(graph.component_inputs(node)[1])
        self._add_pair(node, segment, self._first_phase(segment, node), inputs, outputs)

    def _ascending(self, ids: arrays.IntArray) -> arrays.IntArray:
        """Returns some rows of a node, each once, in the order of their indexes.

        An earlier segment may have some of them, with smaller ids, but not smaller indexes.
        """
        ids = distinct(ids)
        if len(self.graphs.segments) == 1:
            return ids
        return ids[index_order(self.graphs.cindexes[ids, 1:])]

    def _add_pair(self, node: int, segment: int, phase: int, inputs: Ids, outputs: Ids) -> None:
        """Adds the step of a component and that of its input."""
        if not self.network.properties[node] & int(ComponentProperties.REORDERS_INDEXES):
            self._unordered.add_step(phase, 0, node - 1, segment, inputs)
            self._unordered.add_step(phase, 1, node, segment, outputs)
            return
        graph, cindexes = self.graphs.segments[segment], self.graphs.cindexes
        given = cindexes[inputs, 1:], cindexes[outputs, 1:]
        wanted, blocks = self._reordered(node, *given)
        for place, ids in enumerate((inputs, outputs)):
            if wanted[place] is not given[place]:
                ids = graph.cindex_ids(node - 1 + place, wanted[place])
            self._unordered.add_step(
                phase,
                place,
                node - 1 + place,
                segment,
                ids,
                indexes=wanted[place],
                block=blocks[place],
            )

    def _reordered(
        self, node: int, inputs: arrays.IntArray, outputs: arrays.IntArray
    ) -> tuple[tuple[arrays.IntArray, arrays.IntArray], tuple[int, int]]:
        """Lets a component reorder and pad its rows; returns patterns and their blocks.

        If one sequence does not show how the component orders the rows of several, the first two
        sequences do.
        """
        component = self.network.nnet.components[int(self.network.component[node])]
        repeated = component.reorder_repeated_indexes(inputs, outputs)
        if repeated is not NotImplemented:
            return repeated[:2], repeated[2:]
        pair = shortcut.Minibatch(self.reduced.minibatch.sequences[:2])
        reordered = component.reorder_indexes(pair.indexes(inputs, 1), pair.indexes(outputs, 1))
        if pair.size == 1:
            return reordered, (1, 1)
        of_input, of_output = (pair.first_of(indexes) for indexes in reordered)
        if of_input is None or of_output is None:
            name = self.network.nnet.nodes[node].name
            raise IrregularOrderError(f"node '{name}' mixes the rows of sequences irregularly")
        return (of_input[0], of_output[0]), (of_input[1], of_output[1])

    def _add_recurrent_component(self, node: int, segment: int, outputs: Ids) -> None:
        """Adds the steps of a component in a recurrence, two for each phase."""
        graph = self.graphs.segments[segment]
        splits, used = graph.component_inputs(node)
        ids = np.arange(outputs.start, outputs.stop) if isinstance(outputs, slice) else outputs
        order = np.argsort(self.phases.level[ids], kind="stable")
        ids = ids[order].astype(np.int32)
        level = self.phases.level[ids]
        begins = arrays.where(arrays.run_starts(level))
        phases = self._first_phase(segment, node) + level[begins]
        rows = ids - graph.node_range(node).start
        if not self._is_rowwise(node, used, outputs):
            ends = [*begins.tolist(), len(ids)]
            for phase, (begin, end) in zip(phases.tolist(), pairwise(ends), strict=True):
                first, last = splits[rows[begin:end]], splits[rows[begin:end] + 1]
                inputs = self._ascending(used[arrays.expand_ranges(first, last - first)])
                self._add_pair(node, segment, phase, inputs, ids[begin:end])
            return
        counts = np.diff(np.append(begins, len(ids)))
        for place, step_ids in enumerate((used[splits[rows]], ids)):
            self._unordered.add_steps(
                phase=phases,
                place=place,
                node=node - 1 + place,
                segment=segment,
                begin=begins + self._unordered.add_rows(step_ids),
                count=counts,
                block=1,
                source=arrays.NONE,
                is_given=0,
            )

    def _is_rowwise(self, node: int, used: arrays.IntArray, outputs: Ids) -> bool:
        """Whether each row of a component node needs the same row of the input and no other."""
        properties = ComponentProperties(int(self.network.properties[node]))
        if properties & ComponentProperties.SIMPLE:
            return True
        if properties & ComponentProperties.REORDERS_INDEXES:
            return False
        cindexes = self.graphs.cindexes
        return np.array_equal(cindexes[used, 1:], cindexes[outputs, 1:])

    # -- rule (c) ------------------------------------------------------------------------------

    def _add_dim_ranges(self) -> None:
        """Adds the steps of dim-range nodes, after those of all their sources."""
        pieces = [
            self._dim_range_rows(segment, node)
            for segment in range(len(self.graphs.segments))
            for node in arrays.where(self.network.kind == NodeKind.DIM_RANGE).tolist()
        ]
        if not pieces:
            return
        ids, source_ids, node, phase = map(np.concatenate, zip(*pieces, strict=True))
        order = np.argsort(phase, kind="stable")
        ids, source_ids, node, phase = ids[order], source_ids[order], node[order], phase[order]
        step_of_id, row_of_id = self._unordered.places_of_ids()
        steps = self._unordered.table()
        # one step for each node and step of its source, in the phase that first needs it
        pair = node * len(steps["node"]) + step_of_id[source_ids]
        _, first, which = np.unique(pair, return_index=True, return_inverse=True)
        source = step_of_id[source_ids[first]]
        count = steps["count"][source]
        begin = np.cumsum(count) - count
        step_ids = np.full(int(count.sum()), arrays.NONE, np.int32)
        step_ids[begin[which] + row_of_id[source_ids]] = ids
        indexes = self._unordered.indexes_at(arrays.expand_ranges(steps["begin"][source], count))
        self._unordered.add_steps(
            phase=phase[first],
            place=source,
            node=node[first],
            segment=steps["segment"][source],
            begin=begin + self._unordered.add_rows(step_ids, indexes),
            count=count,
            block=steps["block"][source],
            source=source,
            is_given=0,
        )

    def _dim_range_rows(self, segment: int, node: int) -> tuple[NDArray[np.int64], ...]:
        """Returns the rows of a dim-range node: ids, ids of the source, node, phase."""
        graph = self.graphs.segments[segment]
        ids = np.arange(graph.node_range(node).start, graph.node_range(node).stop)
        source_ids = graph.moved_ids(int(self.network.source[node]), node, 0, 0)
        phase = self._first_phase(segment, node) + self.phases.level[ids]
        return ids, source_ids.astype(np.int64), np.full(len(ids), node), phase

    # -- all -----------------------------------------------------------------------------------

    def _numbered(self) -> Steps:
        """Returns the steps in order, with their rows numbered through."""
        table = self._unordered.ordered(self.network)
        node, count = table["node"], table["count"]
        by_node = np.argsort(node, kind="stable")
        places = arrays.expand_ranges(table["begin"][by_node], count[by_node])
        begin = np.empty(len(node), np.int64)
        begin[by_node] = np.cumsum(count[by_node]) - count[by_node]
        cindex_ids = self._unordered.ids_at(places)
        cindexes = self._unordered.cindexes_at(cindex_ids, places)
        if self._unordered.padding:
            cindexes[:, 0] = np.repeat(node[by_node], count[by_node])
        row_of_cindex = np.full(self.graphs.size + 1, arrays.NONE, np.int32)
        row_of_cindex[cindex_ids] = np.arange(len(cindex_ids))
        row_of_cindex[arrays.NONE] = arrays.NONE
        nodes = np.arange(len(self.network.kind) + 1)
        return Steps(
            node=node.astype(np.int32),
            segment=table["segment"].astype(np.int32),
            begin=begin.astype(np.int32),
            count=count.astype(np.int32),
            block=table["block"].astype(np.int32),
            source=table["source"].astype(np.int32),
            is_given=table["is_given"] > 0,
            cindexes=frozen(cindexes),
            cindex_ids=cindex_ids,
            row_of_cindex=row_of_cindex,
            by_node=by_node.astype(np.int32),
            node_begin=np.searchsorted(node[by_node], nodes).astype(np.int32),
        )


class IrregularOrderError(errors.CompilationError):
    """A component orders the rows of several sequences so that no pattern describes them."""
