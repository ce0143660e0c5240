"""The serialized form of a computation graph: the sets of rows, each once.

Only the layout is here; the container is that of all serialized values (nnet3_descriptors).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import check_limit
from nnet3_descriptors.indexes import N
from nnet3_descriptors.structure import Digests
from nnet3_descriptors.values import Serialized

from nnet3_graph.errors import StoredGraphError
from nnet3_graph.sets.bit_layout import BitLayout, Bits
from nnet3_graph.sets.index_set import Grid
from nnet3_graph.sets.patterns import Patterns

IntArray = npt.NDArray[np.int32]


@attrs.frozen(kw_only=True, eq=False)
class StoredSegment:
    """The rows of one segment.

    Attributes:
        t_first, num_t, x_first, num_x, t_guard, x_guard: The box of (t, x); see `BitLayout`.
        sequences: (S,) the values of n, ascending.
        pattern_of: (S,) the pattern of each: a number, from 0 in the order of first occurrence.
        sets: (K, 3) n, t, x: sets of rows end to end, with the number of a pattern as n.
        sets_splits: (sets + 1,) the begin of each set, and the end.
        rows: (nodes,) the set of each node.
        given: (nodes,) the set of the rows that the request supplies.
        rows_so_far: (nodes,) the set of its rows in this and all earlier segments.
        is_pruned: As in the graph.
    """

    t_first: int
    num_t: int
    x_first: int
    num_x: int
    t_guard: int
    x_guard: int
    sequences: IntArray
    pattern_of: IntArray
    sets: IntArray
    sets_splits: IntArray
    rows: IntArray
    given: IntArray
    rows_so_far: IntArray
    is_pruned: bool


@attrs.frozen(kw_only=True, eq=False)
class StoredGraph(Serialized):
    """A graph: the fingerprint of its network, and its segments from the first."""

    FORMAT: ClassVar[str] = "nnet3.computation-graph"
    VERSION: ClassVar[int] = 1

    network_nodes: Digests
    network_components: Digests
    segments: tuple[StoredSegment, ...]


@attrs.frozen(kw_only=True, eq=False)
class SegmentRows:
    """The rows of one segment as the graph has them: for each node a set of the grid's layout."""

    grid: Grid
    rows: tuple[Bits, ...]
    given: tuple[Bits, ...]
    rows_so_far: tuple[Bits, ...]
    is_pruned: bool


def stored_segment(segment: SegmentRows) -> StoredSegment:
    """Returns a segment as it is stored."""
    layout, patterns = segment.grid.layout, segment.grid.patterns
    numbers: dict[Bits, int] = {}
    by_node = {
        name: np.array(
            [numbers.setdefault(bits, len(numbers)) for bits in getattr(segment, name)], np.int32
        )
        for name in ("rows", "given", "rows_so_far")
    }
    tables = [layout.indexes(bits) for bits in numbers]
    splits = np.zeros(len(tables) + 1, np.int32)
    np.cumsum([len(table) for table in tables], out=splits[1:])
    return StoredSegment(
        t_first=layout.t_first,
        num_t=layout.num_t,
        x_first=layout.x_first,
        num_x=layout.num_x,
        t_guard=layout.t_guard,
        x_guard=layout.x_guard,
        sequences=patterns.sequences,
        pattern_of=patterns.pattern_of.astype(np.int32),
        sets=np.concatenate(tables) if tables else np.zeros((0, 3), np.int32),
        sets_splits=splits,
        is_pruned=segment.is_pruned,
        **by_node,
    )


def restored_segment(stored: StoredSegment, nodes: int) -> SegmentRows:
    """Returns the segment that was stored.

    Args:
        stored: The stored segment.
        nodes: The number of nodes of the network.

    Raises:
        StoredGraphError: The parts contradict each other, or are too large.
    """
    grid = Grid(layout=_layout(stored, nodes), patterns=_patterns(stored))
    sets = _sets(stored, grid.layout)
    by_node: dict[str, Any] = {}
    for name in ("rows", "given", "rows_so_far"):
        numbers = getattr(stored, name)
        _require(numbers.shape == (nodes,), f"{name} must have the shape ({nodes},)")
        known = (numbers >= 0) & (numbers < len(sets))
        _require(bool(known.all()), f"{name} must be numbers of the {len(sets)} sets")
        by_node[name] = tuple(sets[number] for number in numbers.tolist())
    for node, (rows, given, so_far) in enumerate(zip(*by_node.values(), strict=True)):
        _require(
            not given & ~rows and not rows & ~so_far,
            f"the given rows of node {node} must be among its rows, and these among all so far",
        )
    return SegmentRows(grid=grid, is_pruned=stored.is_pruned, **by_node)


def _layout(stored: StoredSegment, nodes: int) -> BitLayout:
    t, x = stored.num_t, stored.num_x
    _require(t >= 1 and x >= 1, f"the box must have times and values of x (got {t} and {x})")
    guards = stored.t_guard, stored.x_guard
    _require(
        0 <= guards[0] <= t and 0 <= guards[1] <= x, f"the guards of the box do not fit: {guards}"
    )
    for name, first, count in (("t", stored.t_first, t), ("x", stored.x_first, x)):
        _require(first >= -(2**31) and first + count <= 2**31, f"the values of {name} need 32 bits")
    patterns = int(stored.pattern_of.max(initial=0)) + 1
    needed = nodes * t * x * patterns
    check_limit("cindexes", needed, "the cindexes that the graph spans", StoredGraphError)
    return BitLayout(
        t_first=stored.t_first,
        num_t=t,
        x_first=stored.x_first,
        num_x=x,
        num_patterns=patterns,
        t_guard=guards[0],
        x_guard=guards[1],
    )


def _patterns(stored: StoredSegment) -> Patterns:
    sequences, pattern_of = stored.sequences, stored.pattern_of
    _require(
        sequences.ndim == 1
        and len(sequences) > 0
        and int(sequences[0]) >= 0
        and bool((sequences[1:] > sequences[:-1]).all()),
        "sequences must be numbers from 0 on, ascending",
    )
    _require(pattern_of.shape == sequences.shape, "pattern_of must have one entry per sequence")
    numbers, first = np.unique(pattern_of, return_index=True)
    _require(
        np.array_equal(numbers, np.arange(len(numbers))) and bool((np.diff(first) > 0).all()),
        "pattern_of must count from 0, in the order of first occurrence",
    )
    return Patterns(
        sequences=sequences, pattern_of=pattern_of.astype(np.intp), representatives=first
    )


def _sets(stored: StoredSegment, layout: BitLayout) -> list[Bits]:
    table, splits = stored.sets, stored.sets_splits
    _require(table.ndim == 2 and table.shape[1] == 3, "sets must have the shape (rows, 3)")
    _require(
        splits.ndim == 1
        and len(splits) > 0
        and int(splits[0]) == 0
        and int(splits[-1]) == len(table)
        and not (np.diff(splits) < 0).any(),
        f"sets_splits must rise from 0 to {len(table)}",
    )
    inside = layout.inside(table)
    inside &= (table[:, N] >= 0) & (table[:, N] < layout.num_patterns)
    _require(bool(inside.all()), "sets must lie in the box, with the number of a pattern as n")
    bounds = splits.tolist()
    return [layout.set_of(table[begin:end]) for begin, end in pairwise(bounds)]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise StoredGraphError(f"no valid computation graph: {message}")
