"""The three passes that find the rows of each node: demand, computability, use.

`demanded_rows` goes backward from the outputs and collects the rows that might be read.
`computable_rows` goes forward and finds which of these can be computed. `used_rows` goes backward
again and finds the rows that are read. Each pass visits a node outside of cycles once, with all its
rows at a time. It goes round the nodes of a cycle until it finds nothing new; the first pass goes
round many times in one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from nnet3_graph.nodes.cycles import Cycle
from nnet3_graph.nodes.rules import NodeRules
from nnet3_graph.sets.bit_layout import BitLayout, Bits


class Reader(Protocol):
    """The reads of the rows of a node; those of a row do not depend on other rows."""

    def demand(self, rows: Bits, layout: BitLayout, need: list[Bits]) -> None:
        """Adds to `need` the rows that these rows read; see `Rule.demand`."""


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
    need = rows_reached(nodes, nodes.rules, nodes.cycles, layout, unfollowed, outputs)
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
                readers[node].demand(rows, layout, need)
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
                    readers[node].demand(rows, layout, need)
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


def used_rows(
    nodes: NodeRules,
    layout: BitLayout,
    have: Sequence[Bits],
    given: Sequence[Bits],
    outputs: Mapping[int, Bits],
) -> list[Bits]:
    """Returns the rows of each node that are read, directly or not, for the outputs.

    Args:
        nodes: the rules of the network.
        layout: the layout of the bits.
        have: for each node, the rows that can be computed.
        given: for each node, the rows that are supplied; they read nothing.
        outputs: the requested rows, by node; all of them computable.
    """
    need = [0] * len(nodes.rules)
    for node, rows in outputs.items():
        need[node] = rows
    for group, recurrent in zip(reversed(nodes.groups), reversed(nodes.recurrent), strict=True):
        followed = dict.fromkeys(group, 0)
        changed = True
        while changed:
            changed = False
            for node in reversed(group):
                rows = need[node] & have[node] & ~given[node] & ~followed[node]
                if rows:
                    followed[node] |= rows
                    nodes.rules[node].use(rows, layout, have, need)
                    changed = recurrent
    return [need_rows & have_rows for need_rows, have_rows in zip(need, have, strict=True)]
