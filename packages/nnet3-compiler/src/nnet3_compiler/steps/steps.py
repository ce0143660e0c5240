"""The steps of a computation, and steps in the making: in any order, then sorted and numbered."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np
from nnet3_computation.arrays import NONE, IntArray, expand_ranges, where
from numpy.typing import NDArray

from nnet3_compiler.steps.network import Network, NodeKind

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
