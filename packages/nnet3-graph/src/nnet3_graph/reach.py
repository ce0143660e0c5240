"""Reach: the rows that a computation might need, found from given and requested rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from nnet3_computation import RequestError
from nnet3_descriptors import check_limit, current_limits
from nnet3_descriptors.indexes import IndexArray

from nnet3_graph.bounds import limited, possible_hulls, wanted_hulls
from nnet3_graph.nodes.rules import NodeRules
from nnet3_graph.row_sets import computable_rows, demanded_rows, used_rows
from nnet3_graph.sets.bit_layout import BitLayout, Bits, change_layout
from nnet3_graph.sets.hull import (
    EVERYWHERE,
    NOWHERE,
    Hull,
    check_rows_exist,
    hull_of,
    join,
    join_all,
    meet,
)

MAX_STEPS = (2000, 20)
"""The distance beyond all other rows, in t and x, up to which an endless recurrence is followed."""

_SPREAD = 1000
"""The most cells of a request's box per named row; with more, the limit is smaller."""


@attrs.frozen(kw_only=True, eq=False)
class Earlier:
    """The rows that the earlier segments of a looped computation have.

    Attributes:
        layout: the layout of the bits; it has the patterns of the new segment.
        rows: the rows of each node.
    """

    layout: BitLayout
    rows: Sequence[Bits]


@attrs.frozen(kw_only=True, eq=False)
class Reach:
    """The rows of every node that a computation might need, as sets of one layout.

    Attributes:
        nodes: the rules of the network, for the rows of the layout.
        layout: the layout of the bits.
        given: for each node, the rows that the request supplies.
        earlier: for each node, the rows that earlier segments have.
        outputs: the requested rows, by node.
        inner: for each node, the rows inside the limit of the search.
        need: for each node, the rows that might be read.
        have: for each node, the rows that are given or earlier or can be computed.
    """

    nodes: NodeRules
    layout: BitLayout
    given: list[Bits]
    earlier: list[Bits]
    outputs: dict[int, Bits]
    inner: list[Bits]
    need: list[Bits]
    have: list[Bits]

    @property
    def missing_outputs(self) -> dict[int, Bits]:
        """The requested rows that cannot be computed, by node; empty if there are none."""
        missing = {node: rows & ~self.have[node] for node, rows in self.outputs.items()}
        return {node: rows for node, rows in missing.items() if rows}

    def used(self) -> list[Bits]:
        """Returns for each node the rows that the outputs read, directly or not."""
        supplied = _union(self.given, self.earlier)
        if not self.nodes.has_alternatives and all(
            need & ~have == 0 for need, have in zip(self.need, self.have, strict=True)
        ):
            return self.need  # everything that might be read is read
        return used_rows(self.nodes, self.layout, self.have, supplied, self.outputs)


def find_reach(
    nodes: NodeRules,
    num_patterns: int,
    given: Mapping[int, IndexArray],
    outputs: Mapping[int, IndexArray],
    earlier: Earlier | None = None,
    *,
    only_possible: bool = True,
    max_steps: tuple[int, int] = MAX_STEPS,
) -> Reach:
    """Finds which rows might be read for the outputs, and which of them can be computed.

    Args:
        nodes: the rules of the network.
        num_patterns: number of patterns.
        given: for some nodes, (rows, 3) indexes that are supplied, with the pattern as n.
        outputs: for some nodes, (rows, 3) indexes that are requested, with the pattern as n.
        earlier: the rows of earlier segments.
        only_possible: whether to leave out rows outside of the bounds of all rows that any input
            could make computable; the answers about other rows are the same either way.
        max_steps: the distance in t and x up to which an endless recurrence is followed.

    Raises:
        RequestError: the values of t and x lie so far apart that no box can hold them, or do not
            fit 32 bits.
    """
    supplied, output_hulls = (
        {node: hull_of(indexes) for node, indexes in tables.items()} for tables in (given, outputs)
    )
    named = join_all((*supplied.values(), *output_hulls.values()))
    if earlier is not None:
        for node, rows in enumerate(earlier.rows):
            hull = earlier.layout.hull_of(rows)
            named = join(named, hull)
            supplied[node] = join(supplied.get(node, NOWHERE), hull)
    possible = possible_hulls(nodes, supplied) if only_possible else [EVERYWHERE] * len(nodes.rules)
    wanted = wanted_hulls(nodes, possible, output_hulls)
    extent = join_all((named, *wanted))
    hulls, inner = wanted, extent
    if not extent.is_finite:
        finite = join_all((named, *(hull for hull in wanted if hull.is_finite)))
        hulls = limited(wanted, finite.extended(*max_steps))
        inner = finite.extended(max_steps[0] // 2, max_steps[1] // 2)
        extent = join_all((named, *hulls))
    num_named = sum(len(indexes) for indexes in (*given.values(), *outputs.values()))
    layout = make_layout(extent, num_patterns, nodes, num_named)
    nodes = nodes.within(layout)
    inside = [layout.box(hull) for hull in hulls]
    given_rows = [0] * len(hulls)
    for node, indexes in given.items():
        given_rows[node] = layout.set_of(indexes)
    output_rows = {node: layout.set_of(indexes) for node, indexes in outputs.items()}
    earlier_rows = [0] * len(hulls)
    if earlier is not None:
        earlier_rows = [change_layout(rows, earlier.layout, layout) for rows in earlier.rows]
    supplied_rows = _union(given_rows, earlier_rows)
    need = demanded_rows(nodes, layout, inside, supplied_rows, output_rows)
    return Reach(
        nodes=nodes,
        layout=layout,
        given=given_rows,
        earlier=earlier_rows,
        outputs=output_rows,
        inner=[
            box if hull is unlimited else layout.box(meet(inner, hull))
            for box, hull, unlimited in zip(inside, hulls, wanted, strict=True)
        ],
        need=need,
        have=computable_rows(nodes, layout, need, supplied_rows),
    )


def make_layout(
    hull: Hull, num_patterns: int, nodes: NodeRules, num_named: int | None = None
) -> BitLayout:
    """Returns a layout for the rows in a hull.

    Args:
        hull: the hull of the rows.
        num_patterns: number of patterns.
        nodes: the rules of the network.
        num_named: the number of rows that a request names, for the limit on its box; None for no
            limit.

    Raises:
        RequestError: the box is larger than `Limits.cindexes`, or than a tenth of that, and it has
            more than a thousand times as many (pattern, t, x) as are named.
    """
    check_rows_exist(hull)
    num_t = int(hull.t_last - hull.t_first) + 1
    num_x = int(hull.x_last - hull.x_first) + 1
    t_guard, x_guard = min(nodes.moves[0], num_t - 1), min(nodes.moves[1], num_x - 1)
    needed = (num_t + t_guard) * (num_x + x_guard) * num_patterns * len(nodes.rules)
    spans = (
        f"the request spans {num_t} values of t, {num_x} of x and {num_patterns} different "
        f"patterns of sequences, for {len(nodes.rules)} nodes"
    )
    check_limit("cindexes", needed, spans, RequestError)
    limit = current_limits().cindexes
    is_spread = num_named is not None and num_t * num_x * num_patterns > _SPREAD * num_named
    if is_spread and needed > limit // 10:
        raise RequestError(
            f"{spans}, and names only {num_named} rows: {needed} is above a tenth of the limit of "
            f"{limit} (Limits.cindexes)"
        )
    return BitLayout(
        t_first=int(hull.t_first),
        num_t=num_t,
        x_first=int(hull.x_first),
        num_x=num_x,
        num_patterns=num_patterns,
        t_guard=t_guard,
        x_guard=x_guard,
    )


def _union(first: Sequence[Bits], second: Sequence[Bits]) -> list[Bits]:
    return [one | other for one, other in zip(first, second, strict=True)]
