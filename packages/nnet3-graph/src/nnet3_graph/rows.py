"""Reach: the rows that a computation might need, found from given and requested rows.

Two passes over hulls come before all sets of rows. The forward pass finds the rows that might be
computable at all from the rows of the request. The backward pass finds which of these the outputs
might read. The bounds limit the sets of rows of recurrent networks, whose dependencies have no end,
and keep needless rows out of all sets.

`demanded_rows` goes backward from the outputs and collects the rows that might be read.
`computable_rows` goes forward and finds which of these can be computed. `used_rows` goes backward
again and finds the rows that are read. Each pass visits a node outside of cycles once, with all its
rows at a time. It goes round the nodes of a cycle until it finds nothing new; the first pass goes
round many times in one step.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from nnet3_computation import RequestError
from nnet3_descriptors import check_limit, current_limits
from nnet3_descriptors.indexes import IndexArray

from nnet3_graph.nodes import Cycle, NodeRules
from nnet3_graph.rules import Rule
from nnet3_graph.sets.bits import (
    EVERYWHERE,
    NOWHERE,
    BitLayout,
    Bits,
    Hull,
    change_layout,
    check_rows_exist,
    hull_of,
    join,
    join_all,
    meet,
    widened,
)

_EXACT_ROUNDS = 3
"""Rounds in a cycle of nodes after which bounds that still move become infinite."""


def possible_hulls(nodes: NodeRules, given: Mapping[int, Hull]) -> list[Hull]:
    """Returns, for each node, a hull of the rows that might be computable.

    Args:
        nodes: the rules of the network.
        given: hulls of the rows that are supplied, by node.
    """
    hulls = [given.get(node, NOWHERE) for node in range(len(nodes.rules))]
    for group, recurrent in zip(nodes.groups, nodes.recurrent, strict=True):
        if not recurrent:
            (node,) = group
            possible = nodes.rules[node].possible(hulls)
            hulls[node] = join(hulls[node], possible) if node in given else possible
            continue
        rounds, changed = 0, True
        while changed:
            changed = False
            for node in group:
                hull = join(hulls[node], nodes.rules[node].possible(hulls))
                if hull != hulls[node]:
                    exact = rounds < _EXACT_ROUNDS + len(group)
                    hulls[node] = hull if exact else widened(hulls[node], hull)
                    changed = True
            rounds += 1
    return hulls


def wanted_hulls(nodes: NodeRules, possible: list[Hull], outputs: Mapping[int, Hull]) -> list[Hull]:
    """Returns, for each node, a hull of the possible rows that the outputs might read.

    Args:
        nodes: the rules of the network.
        possible: the result of `possible_hulls`.
        outputs: hulls of the rows that are requested, by node.
    """
    hulls = [NOWHERE] * len(nodes.rules)

    def want(node: int, hull: Hull) -> None:
        known, hull = hulls[node], meet(hull, possible[node])
        hulls[node] = hull if known is NOWHERE else join(known, hull)

    for node, hull in outputs.items():
        want(node, hull)
    for group, recurrent in zip(reversed(nodes.groups), reversed(nodes.recurrent), strict=True):
        if not recurrent:
            (node,) = group
            if hulls[node]:
                nodes.rules[node].want(hulls[node], want)
            continue
        rounds, followed = 0, dict.fromkeys(group, NOWHERE)
        changed = True
        while changed:
            changed = False
            for node in reversed(group):
                hull = hulls[node]
                if not hull or hull == followed[node]:
                    continue
                if rounds > _EXACT_ROUNDS:
                    hull = meet(widened(followed[node], hull), possible[node])
                    hulls[node] = hull
                followed[node] = hull
                nodes.rules[node].want(hull, want)
                changed = True
            rounds += 1
    return hulls


def limited(hulls: list[Hull], limit: Hull) -> list[Hull]:
    """Returns the hulls, their infinite bounds replaced by the bounds of `limit`."""
    return [
        Hull(*(new if math.isinf(bound) else bound for bound, new in zip(hull, limit, strict=True)))
        if hull and not hull.is_finite
        else hull
        for hull in hulls
    ]


Reader = Callable[[Bits, BitLayout, list[Bits]], None]
"""Adds the rows that some rows of a node read to a list with a set for each node.

Those of a row do not depend on other rows; see `Rule.demand`.
"""


def demanded_rows(
    nodes: NodeRules,
    layout: BitLayout,
    inside: Sequence[Bits],
    given: Sequence[Bits],
    outputs: Mapping[int, Bits],
) -> list[Bits]:
    """Returns the rows of each node that might be read, directly or not, for the outputs.

    Args:
        nodes: the rules of the network.
        layout: the layout of the bits.
        inside: for each node, a set that contains all rows that can be computed.
        given: for each node, the rows that are supplied; the pass does not follow them further.
        outputs: the requested rows, by node.
    """
    unfollowed = [rows & ~supplied for rows, supplied in zip(inside, given, strict=True)]
    readers = [rule.demand for rule in nodes.rules]
    need = rows_reached(nodes, readers, nodes.cycles, layout, unfollowed, outputs)
    return [rows & each for rows, each in zip(need, inside, strict=True)]


def rows_reached(
    nodes: NodeRules,
    readers: Sequence[Reader],
    cycles: Sequence[Sequence[Cycle]],
    layout: BitLayout,
    follow: Sequence[Bits],
    start: Mapping[int, Bits],
) -> list[Bits]:
    """Returns the rows of each node that some rows read, directly or not, and these rows.

    Args:
        nodes: the rules of the network; here only the order of the nodes counts.
        readers: for each node, the reads of its rows.
        cycles: for each group of nodes, some of the ways in which its rows read others of the same
            node.
        layout: the layout of the bits.
        follow: for each node, the rows whose reads are followed.
        start: the rows where the search begins, by node.

    Returns:
        For each node a set that may have other bits too, which are not in `follow`.
    """
    need = [0] * len(readers)
    for node, rows in start.items():
        need[node] = rows
    groups = zip(nodes.groups, nodes.recurrent, cycles, strict=True)
    for group, recurrent, ways in reversed(tuple(groups)):
        if not recurrent:
            (node,) = group
            rows = need[node] & follow[node]
            if rows:
                readers[node](rows, layout, need)
            continue
        # The sources of each row are followed once.
        unfollowed = {node: follow[node] for node in group}
        rounds, changed = 0, True
        while changed:
            changed = False
            for node in reversed(group):
                rows = need[node] & unfollowed[node]
                if rows:
                    unfollowed[node] ^= rows
                    readers[node](rows, layout, need)
                    changed = True
            rounds += 1
            if rounds.bit_count() == 1:  # in rounds 1, 2, 4, ...: costs a few, often saves many
                for way in ways:
                    _demand_along(way, layout, unfollowed, need)
    return need


def _demand_along(
    cycle: Cycle, layout: BitLayout, unfollowed: Mapping[int, Bits], need: list[Bits]
) -> None:
    """Adds to `need` the rows that many rounds of a cycle add, in steps that double.

    The rows are exactly those that single rounds would reach. After step k, `reached` holds the
    rows that fewer than 2^k rounds lead to, and `passable` the rows from which 2^k rounds stay
    inside.
    """
    if cycle.moves[0] > layout.t_guard or cycle.moves[1] > layout.x_guard:
        return  # the guard bits are too few: a move could lead into other rows
    node = cycle.stops[0][0]
    going_on = [
        unfollowed[stop] & rows for (stop, _, _), rows in zip(cycle.stops, cycle.open, strict=True)
    ]
    passable = going_on[0]
    for (_, t, x), rows in zip(cycle.stops, going_on, strict=True):
        passable &= _moved(rows, -(t + x * layout.row))
    move = cycle.t + cycle.x * layout.row
    need[node] |= _arriving(cycle, layout, going_on, need)
    reached = need[node] & passable
    once = move
    while True:
        further = reached | _moved(reached, move) & passable
        if further == reached:
            break
        reached = further
        passable &= _moved(passable, move)
        move *= 2
    need[node] |= reached | _moved(reached, once)


def _arriving(
    cycle: Cycle, layout: BitLayout, going_on: Sequence[Bits], need: Sequence[Bits]
) -> Bits:
    """Returns the rows of the first node of a cycle that its other nodes lead to.

    The last round may have left rows at any stop, and none at the first.
    """
    (_, last_t, last_x), *rest = cycle.stops
    rows = 0
    for (stop, t, x), some in zip(rest, going_on[1:], strict=True):
        move = t - last_t + (x - last_x) * layout.row
        rows = (_moved(rows, move) | need[stop]) & some
        last_t, last_x = t, x
    return _moved(rows, cycle.t - last_t + (cycle.x - last_x) * layout.row)


def _moved(bits: Bits, move: int) -> Bits:
    return bits << move if move >= 0 else bits >> -move


def computable_rows(
    nodes: NodeRules, layout: BitLayout, need: Sequence[Bits], given: Sequence[Bits]
) -> list[Bits]:
    """Returns for each node the demanded rows that can be computed, and the given rows.

    This is the least solution: a row is computable if it follows from given rows in finitely many
    steps.

    Args:
        nodes: the rules of the network.
        layout: the layout of the bits.
        need: for each node, the demanded rows.
        given: for each node, the rows that are supplied.
    """
    have = list(given)
    for group, recurrent in zip(nodes.groups, nodes.recurrent, strict=True):
        changed = True
        while changed:
            changed = False
            for node in group:
                missing = need[node] & ~have[node]
                if missing:
                    found = missing & nodes.rules[node].available(missing, layout, have)
                    if found:
                        have[node] |= found
                        changed = recurrent
    return have


MAX_STEPS = (2000, 20)
"""The distance beyond all other rows, in t and x, up to which an endless recurrence is followed."""

_SPREAD = 1000
"""The most cells of a request's box per named row; with more, the limit is smaller."""


Earlier = tuple[BitLayout, Sequence[Bits]]
"""The rows of each node that the earlier segments of a looped computation have, in a layout.

The layout has the patterns of the new segment.
"""


class Reach(NamedTuple):
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
        if not self.nodes.has_alternatives and all(
            need & ~have == 0 for need, have in zip(self.need, self.have, strict=True)
        ):
            return self.need  # everything that might be read is read

        def reader(rule: Rule) -> Reader:
            return lambda rows, layout, need: rule.use(rows, layout, self.have, need)

        follow = [
            have & ~given & ~earlier
            for have, given, earlier in zip(self.have, self.given, self.earlier, strict=True)
        ]
        readers, no_cycles = [*map(reader, self.nodes.rules)], [()] * len(self.nodes.groups)
        found = rows_reached(self.nodes, readers, no_cycles, self.layout, follow, self.outputs)
        return [rows & have for rows, have in zip(found, self.have, strict=True)]


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
        for node, rows in enumerate(earlier[1]):
            hull = earlier[0].hull_of(rows)
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
        earlier_rows = [change_layout(rows, earlier[0], layout) for rows in earlier[1]]
    supplied_rows = list(map(operator.or_, given_rows, earlier_rows))
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
