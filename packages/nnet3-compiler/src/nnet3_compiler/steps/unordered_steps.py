"""Steps in the making: collected in any order, then sorted, and their rows numbered."""

from __future__ import annotations

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


@attrs.define(eq=False)
class UnorderedSteps:
    """Steps whose rows are ranges of a pool of rows.

    Attributes:
        cindexes: (cindexes, 4) int32, all cindexes of the graphs.
        pool: Cindex ids, as pieces; the first piece are all ids in order.
        pool_size: Number of rows in the pool.
        padding: Rows of the pool that the graphs lack: where they are, and their indexes.
        pieces: The steps, as pieces of shape (steps, len(COLUMNS)).
    """

    cindexes: IntArray
    pool: list[IntArray] = attrs.Factory(list)
    pool_size: int = 0
    padding: list[tuple[NDArray[np.int64], IntArray]] = attrs.Factory(list)
    pieces: list[list[tuple[int, ...]] | NDArray[np.int64]] = attrs.Factory(list)

    def __attrs_post_init__(self) -> None:
        self.add_rows(np.arange(len(self.cindexes), dtype=np.int32))

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
