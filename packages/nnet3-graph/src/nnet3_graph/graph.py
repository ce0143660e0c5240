"""ComputationGraph: the cindexes of a computation, and their dependencies."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from functools import cached_property

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation import RequestError
from nnet3_computation.arrays import Bools, IntArray, every
from nnet3_descriptors import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    NetworkError,
    Nnet,
    OutputNode,
    check_limit,
)
from nnet3_descriptors.components.index_rules import Windows
from nnet3_descriptors.descriptors import ForwardingDescriptor
from nnet3_descriptors.indexes import AnyIndexes, IndexArray, distinct, moved_indexes
from nnet3_descriptors.values import frozen, shown

from nnet3_graph.nodes import node_rules
from nnet3_graph.rules import NEVER, All, AnyOf, ByTime, Optional, Rule, Shift
from nnet3_graph.sets.bits import Bits
from nnet3_graph.sets.index_set import Grid, IndexSet

Splits = npt.NDArray[np.int64]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ComputationGraph:
    """The rows of every node that a computation needs, and the rows that each of them reads.

    A cindex is a row (n, t, x) of a node. Its number, the cindex id, counts the cindexes of the
    graph by node and, within a node, in the order of indexes (t, then x, then n).

    Large arrays are made on first use. Asking by node (`index_set`, `leaf_ids`, `component_inputs`)
    costs less than `cindexes` and `dependencies`. Nodes with the same rows share one `IndexSet`: if
    `graph.index_set(a) is graph.index_set(b)`, then results for the rows of node a hold for node b.

    Graphs are equal if they have equal networks, the same cindexes and given rows, and equal
    earlier segments; equal graphs have equal hashes.

    Attributes:
        nnet: the network.
        grid: the box in which all rows lie, and the sequences.
        index_sets: for each node of the network, its rows.
        given_sets: for each node, those of its rows that the request supplies; they read nothing.
        rows_so_far: for each node, its rows in this and all earlier segments, as bits of the layout
            of the grid; for the builder of the next segment.
        first_cindex_id: the id of the first cindex; 0 unless there is an earlier segment.
        previous: the graph of the earlier segments of a looped computation, whose cindexes this
            one may read, or None.
        is_pruned: whether the graph has only the rows that the outputs read, and the inputs. If
            not, `dependencies` holds all cindexes of the graph that might be read.
    """

    nnet: Nnet
    grid: Grid
    index_sets: tuple[IndexSet, ...]
    given_sets: tuple[IndexSet, ...]
    rows_so_far: tuple[Bits, ...]
    first_cindex_id: int = 0
    previous: ComputationGraph | None = None
    is_pruned: bool = True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ComputationGraph):
            return NotImplemented
        return self is other or (
            self.is_pruned == other.is_pruned
            and self._starts == other._starts
            and self.nnet == other.nnet
            and self.previous == other.previous
            and np.array_equal(self.cindexes, other.cindexes)
            and np.array_equal(self.is_input, other.is_input)
        )

    def __hash__(self) -> int:
        return hash((self.is_pruned, self._starts))

    def __repr__(self) -> str:
        """The numbers of rows and nodes."""
        nodes = sum(map(bool, map(len, self.index_sets)))
        return f"<ComputationGraph: {self.num_cindexes} cindexes of {nodes} nodes>"

    def _repr_html_(self) -> str | None:
        """The cindexes of each node, for notebooks."""
        return shown("graph_html", self)

    # -- cindexes ------------------------------------------------------------------------------

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """The first cindex id of each node, and the id after the last."""
        sizes = {id(each): len(each) for each in set(self.index_sets)}
        counts = (sizes[id(each)] for each in self.index_sets)
        return tuple(itertools.accumulate(counts, initial=self.first_cindex_id))

    @cached_property
    def _all_ids(self) -> IntArray:
        """The cindex ids of this segment, in order."""
        return frozen(np.arange(self.first_cindex_id, self._starts[-1], dtype=np.int32))

    @cached_property
    def node_starts(self) -> Splits:
        """(nodes + 1,) int64, the first cindex id of each node, and the id after the last."""
        return frozen(np.array(self._starts, dtype=np.int64))

    @property
    def num_cindexes(self) -> int:
        """Number of cindexes of this segment."""
        return self._starts[-1] - self.first_cindex_id

    @property
    def segment_ends(self) -> tuple[int, ...]:
        """The cindex id after the last, for each segment up to this one."""
        earlier = self.previous.segment_ends if self.previous is not None else ()
        return (*earlier, self._starts[-1])

    @cached_property
    def cindexes(self) -> IndexArray:
        """(N, 4) int32, columns node, n, t, x; row i is the cindex with id first_cindex_id + i."""
        cindexes = np.empty((self.num_cindexes, 4), dtype=np.int32)
        starts = self.node_starts
        cindexes[:, 0] = np.repeat(np.arange(len(self.index_sets)), starts[1:] - starts[:-1])
        np.concatenate([rows.indexes for rows in self.index_sets], out=cindexes[:, 1:])
        return frozen(cindexes)

    @cached_property
    def is_input(self) -> Bools:
        """(N,) whether the request supplies the cindex."""
        is_input = np.zeros(self.num_cindexes, dtype=np.bool_)
        for node in range(len(self.index_sets)):
            is_input[self._rows(node)] = self.is_given(node)
        return frozen(is_input)

    def index_set(self, node: int) -> IndexSet:
        """Returns the rows of a node; the same object for nodes with the same rows."""
        return self.index_sets[node]

    def is_given(self, node: int) -> Bools:
        """Returns, for each row of a node, whether the request supplies it."""
        index_set, given = self.index_sets[node], self.given_sets[node]
        if given is index_set:
            return np.ones(len(index_set), dtype=np.bool_)
        is_given = np.zeros(len(index_set), dtype=np.bool_)
        if given.bits:
            is_given[index_set.find_moved(given, 0, 0)] = True
        return is_given

    def node_range(self, node: int) -> slice:
        """Returns the cindex ids of a node, as a slice of ids.

        Raises:
            RequestError: there is no node of that number.
        """
        self._check_node(node)
        return slice(self._starts[node], self._starts[node + 1])

    def _rows(self, node: int) -> slice:
        """The rows of a node in `cindexes`."""
        first = self.first_cindex_id
        return slice(self._starts[node] - first, self._starts[node + 1] - first)

    def cindex_ids(self, node: int, indexes: AnyIndexes) -> IntArray:
        """Returns the cindex ids of rows of a node.

        Args:
            node: number of the node.
            indexes: (K, 3) int32 or int64, columns n, t, x.

        Returns:
            (K,) int32; -1 where neither this graph nor an earlier segment has the cindex.

        Raises:
            RequestError: there is no node of that number, or the indexes are not integers of that
                shape.
        """
        self._check_node(node)
        _check_integers(indexes, 3)
        ids = self._as_ids(node, self.index_sets[node].find(indexes))
        if self.previous is None:
            return ids
        missing = ids < 0
        if missing.any():
            ids[missing] = self.previous.cindex_ids(node, indexes[missing])
        return ids

    def find(self, cindexes: AnyIndexes) -> IntArray:
        """Returns the cindex ids of rows of any nodes.

        Args:
            cindexes: (K, 4) int32 or int64, columns node, n, t, x.

        Returns:
            (K,) int32; -1 where neither this graph nor an earlier segment has the cindex, and where
            there is no such node.

        Raises:
            RequestError: the cindexes are not integers of that shape.
        """
        _check_integers(cindexes, 4)
        ids = np.full(len(cindexes), -1, dtype=np.int32)
        for node in distinct(cindexes[:, 0]).tolist():
            if not 0 <= node < len(self.index_sets):
                continue
            rows = cindexes[:, 0] == node
            ids[rows] = self.cindex_ids(node, cindexes[rows, 1:])
        return ids

    def moved_ids(self, source: int, reader: int, t: int, x: int) -> IntArray:
        """Returns the cindex ids of a node's rows at those of another node, moved by (t, x).

        The result is `cindex_ids(source, indexes of reader + (0, t, x))`, found faster.

        Args:
            source: number of the node whose ids are returned.
            reader: number of the node whose rows are looked up.
            t: the number to add to t.
            x: the number to add to x.

        Returns:
            (rows of the reader,) int32, which may be read-only; -1 where there is no such cindex.
        """
        wanted = self.index_sets[reader]
        if t == 0 and x == 0 and self.index_sets[source] is wanted:
            return self._all_ids[self._rows(source)]
        ids = self._as_ids(source, self.index_sets[source].find_moved(wanted, t, x))
        if self.previous is not None and (missing := ids < 0).any():
            moved = moved_indexes(wanted.indexes[missing], t, x)
            ids[missing] = self.previous.cindex_ids(source, moved)
        return ids

    def _check_node(self, node: int) -> None:
        if not 0 <= node < len(self.index_sets):
            raise RequestError(
                f"expected a node from 0 to {len(self.index_sets) - 1}, found {node}"
            )

    def _as_ids(self, node: int, positions: IntArray) -> IntArray:
        """Returns the ids for positions in the rows of a node; -1 stays -1."""
        start = self._starts[node]
        return positions + np.int32(start) * (positions >= 0) if start else positions.copy()

    def counts_by_node(self, nnet: Nnet | None = None) -> dict[str, int]:
        """Returns the number of cindexes of each node that has any, by name.

        Args:
            nnet: Not needed: the graph knows its network.
        """
        return {
            name: len(index_set)
            for name, index_set in zip(self.nnet.node_names, self.index_sets, strict=True)
            if index_set.bits
        }

    # -- dependencies --------------------------------------------------------------------------

    @cached_property
    def _all_dependencies(self) -> tuple[Splits, IntArray]:
        parts = [self.dependencies_of(node) for node in range(len(self.index_sets))]
        splits = np.zeros(self.num_cindexes + 1, dtype=np.int64)
        counts = [part_splits[1:] - part_splits[:-1] for part_splits, _ in parts]
        np.cumsum(np.concatenate(counts), out=splits[1:])
        dependencies = np.concatenate([ids for _, ids in parts])
        return frozen(splits), frozen(dependencies)

    @property
    def dependency_splits(self) -> Splits:
        """(N + 1,) int64; row i reads dependencies[splits[i]:splits[i + 1]]."""
        return self._all_dependencies[0]

    @property
    def dependencies(self) -> IntArray:
        """(M,) int32, the cindex ids that each cindex reads; ascending and distinct for each."""
        return self._all_dependencies[1]

    def dependencies_of(self, node: int) -> tuple[Splits, IntArray]:
        """Returns the rows that the rows of a node read.

        Args:
            node: number of the node.

        Returns:
            splits (rows + 1,) int64 and ids (M,) int32: row i reads ids[splits[i]:splits[i + 1]],
            ascending and distinct. Rows that the request supplies read nothing.
        """
        definition = self.nnet.nodes[node]
        index_set = self.index_sets[node]
        if not index_set.bits:
            return _rectangle(np.empty((0, 0), dtype=np.int32))
        match definition:
            case InputNode():
                return _rectangle(np.empty((len(index_set), 0), dtype=np.int32))
            case ComponentInputNode() | OutputNode():
                return _distinct_by_row(np.concatenate(self.leaf_ids(node)).T)
            case DimRangeNode():
                source = self.nnet.node_index(definition.source)
                return _present(self.moved_ids(source, node, 0, 0)[:, None])
            case ComponentNode():
                splits, ids = self.component_inputs(node)
                return _sorted_by_row(splits, ids)

    def leaf_ids(self, node: int) -> tuple[IntArray, ...]:
        """Returns the rows that enter each part of a component-input or output node's descriptor.

        Args:
            node: number of the node.

        Returns:
            For each part of the descriptor (each argument of Append) an (L, rows) int32 array: the
            cindex that leaf l of the part reads, for each row of the node. The value is -1 where
            the leaf does not enter the sum: IfDefined leaves it out, or Failover takes the other
            branch. The arrays may be read-only.

        Raises:
            RequestError: the leaves read more rows than `Limits.reads`.
        """
        definition = self.nnet.nodes[node]
        assert isinstance(definition, ComponentInputNode | OutputNode)
        self._check_reads(node, len(definition.descriptor.leaves) * len(self.index_sets[node]))
        parts = []
        for part in definition.descriptor.parts:
            if isinstance(part, ForwardingDescriptor):
                parts.append(self._ids_of_leaf(node, part)[None])
                continue
            leaves = part.leaves
            ids = np.empty((len(leaves), len(self.index_sets[node])), dtype=np.int32)
            for number, leaf in enumerate(leaves):
                ids[number] = self._ids_of_leaf(node, leaf)
            if self.is_pruned and not every(used := part.used(ids >= 0)):
                ids[~used] = -1
            parts.append(ids)
        return tuple(parts)

    def _ids_of_leaf(self, node: int, leaf: ForwardingDescriptor) -> IntArray:
        """Returns, for each row of a node, the cindex that a leaf maps it to, or -1."""
        shift = leaf.shift()
        if shift is not None:
            name, t, x = shift
            return self.moved_ids(self.nnet.node_index(name), node, t, x)
        rows = self.index_sets[node].indexes
        return self.find(leaf.dependencies(rows, self.nnet.node_indexes)[0])

    def component_inputs(self, node: int) -> tuple[Splits, IntArray]:
        """Returns the rows of its component-input node that a component node reads.

        Args:
            node: number of the component node.

        Returns:
            splits (rows + 1,) int64 and ids (M,) int32: row i reads ids[splits[i]:splits[i + 1]],
            in the order of the component's index rules. Rows that the request supplies read
            nothing.

        Raises:
            RequestError: the rows read more rows than `Limits.reads`.
        """
        rule = node_rules(self.nnet).rules[node]
        is_given = self.is_given(node) if self.given_sets[node].bits else None
        windows = _windows(rule)
        if windows is not None and self.previous is None:
            return self._inputs_within(windows, node, is_given)
        parts = rule.parts if isinstance(rule, All) else (rule,)
        reads = [part.part if isinstance(part, Optional) else part for part in parts]
        moves = [read for read in reads if isinstance(read, Shift)]
        if len(moves) < len(reads) or not moves:
            return self._asked_inputs(node, is_given)
        self._check_reads(node, len(moves) * len(self.index_sets[node]))
        ids = np.stack([self.moved_ids(node - 1, node, move.t, move.x) for move in moves], axis=1)
        if is_given is not None:
            ids[is_given] = -1
        return _present(ids)

    def _check_reads(self, node: int, count: int) -> None:
        """Raises RequestError if the rows of a node read too many rows to list them."""
        rows = len(self.index_sets[node])
        what = f"node '{self.nnet.nodes[node].name}': the rows that its {rows} rows read"
        check_limit("reads", count, what, RequestError)

    def _inputs_within(
        self, windows: Windows, node: int, is_given: Bools | None
    ) -> tuple[Splits, IntArray]:
        """The existing inputs of a component that reads windows; listed once their number is known.

        The length of a window makes no difference.
        """
        inputs, rows = self.index_sets[node - 1].indexes, self.index_sets[node].indexes
        order, first, end = windows.rows_within(inputs, rows)
        counts = end - first
        if is_given is not None:
            counts[is_given] = 0
        splits = np.concatenate([[0], np.cumsum(counts)])
        self._check_reads(node, int(splits[-1]))
        places = np.repeat(first - splits[:-1], counts)
        places += np.arange(len(places))
        return splits, self._as_ids(node - 1, order.astype(np.int32)[places])

    def _asked_inputs(self, node: int, is_given: Bools | None) -> tuple[Splits, IntArray]:
        """The inputs of a component whose index rules have to be asked."""
        definition = self.nnet.nodes[node]
        assert isinstance(definition, ComponentNode)
        component = self.nnet.component_of(definition)
        rows = self.index_sets[node].indexes
        asking = np.arange(len(rows)) if is_given is None else np.flatnonzero(~is_given)
        try:
            splits, inputs = component.input_dependencies(rows[asking])
        except NetworkError as error:
            raise RequestError(f"node '{definition.name}': {error}") from error
        ids = self.cindex_ids(node - 1, inputs)
        used = ids >= 0
        if self.is_pruned:
            _, used = component.is_computable(rows[asking], splits, inputs, used)
        totals = np.concatenate([[0], np.cumsum(used)])
        counts = np.zeros(len(rows), dtype=np.int64)
        counts[asking] = totals[splits[1:]] - totals[splits[:-1]]
        return np.concatenate([[0], np.cumsum(counts)]), ids[used]


def _windows(rule: Rule) -> Windows | None:
    """Returns the windows that rows read, if a rule has nothing else."""
    parts = rule.parts if isinstance(rule, ByTime) else (rule,)
    windows = [part.offsets if isinstance(part, AnyOf) else None for part in parts]
    return Windows.of(windows) if windows.count(None) == parts.count(NEVER) else None


def _check_integers(indexes: AnyIndexes, columns: int) -> None:
    if indexes.ndim != 2 or indexes.shape[1] != columns or indexes.dtype.kind not in "iu":
        raise RequestError(
            f"expected integers of the shape (rows, {columns}), found {indexes.dtype} "
            f"{indexes.shape}"
        )


def make_graph(
    nnet: Nnet,
    grid: Grid,
    *,
    rows: Sequence[Bits],
    given: Sequence[Bits],
    earlier: Sequence[Bits],
    previous: ComputationGraph | None,
    is_pruned: bool = True,
) -> ComputationGraph:
    """Returns the graph that has these rows, in which equal sets of rows are one object.

    Args:
        nnet: the network.
        grid: the box in which the rows lie, and the sequences.
        rows: for each node, its rows, as bits of the layout of the grid.
        given: for each node, those of them that the request supplies.
        earlier: for each node, the rows of the earlier segments.
        previous: the graph of the earlier segments.
        is_pruned: see `ComputationGraph`.
    """
    known: dict[Bits, IndexSet] = {}

    def shared(bits: Bits) -> IndexSet:
        found = known.get(bits)
        if found is None:
            found = known[bits] = IndexSet(grid=grid, bits=bits)
        return found

    return ComputationGraph(
        nnet=nnet,
        grid=grid,
        index_sets=tuple(map(shared, rows)),
        given_sets=tuple(map(shared, given)),
        rows_so_far=tuple(map(operator.or_, rows, earlier)),
        first_cindex_id=previous.segment_ends[-1] if previous is not None else 0,
        previous=previous,
        is_pruned=is_pruned,
    )


def _rectangle(ids: IntArray) -> tuple[Splits, IntArray]:
    """Returns the CSR form of (rows, D) ids, none of them missing."""
    rows, count = ids.shape
    return np.arange(rows + 1, dtype=np.int64) * count, ids.reshape(-1)


def _present(ids: IntArray) -> tuple[Splits, IntArray]:
    """Returns the CSR form of (rows, D) ids, where -1 stands for none."""
    there = ids >= 0
    if np.count_nonzero(there) == there.size:
        return _rectangle(ids)
    splits = np.zeros(len(ids) + 1, dtype=np.int64)
    np.cumsum(there.sum(axis=1), out=splits[1:])
    return splits, ids[there]


def _distinct_by_row(ids: IntArray) -> tuple[Splits, IntArray]:
    """Returns the CSR form of (rows, D) ids, sorted and without repetition in each row."""
    if ids.shape[1] <= 1:
        return _present(ids)
    ids = np.sort(ids, axis=1)
    repeated = ids[:, 1:] == ids[:, :-1]
    if repeated.any():
        ids[:, 1:][repeated] = -1
    return _present(ids)


def _sorted_by_row(splits: Splits, ids: IntArray) -> tuple[Splits, IntArray]:
    """Sorts the ids of each row of a CSR form."""
    if len(ids) < 2 or (ids[1:] > ids[:-1]).all():
        return splits, ids
    rows = np.repeat(np.arange(len(splits) - 1), np.diff(splits))
    return splits, ids[np.lexsort((ids, rows))]
