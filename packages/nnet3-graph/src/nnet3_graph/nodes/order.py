"""The order of nodes by their dependencies, and cycles of nodes that read each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nnet3_descriptors import Nnet
from nnet3_descriptors.structure import strongly_connected_components
from nnet3_descriptors.values import remembered

from nnet3_graph.rules import All, First, InRows, Optional, Rule, Shift
from nnet3_graph.sets.bits import Bits


@remembered
def node_groups(nnet: Nnet) -> tuple[tuple[int, ...], ...]:
    """Groups the nodes of a network that depend on each other, in an order of computation.

    Depth-first searches begin at the nodes in their order and go along the users of each node. The
    group that such a search leaves last comes first. This rule orders groups that do not depend on
    each other.

    Returns:
        The nodes, each once, in groups. What a node reads stands before it, except for the edges
        inside a group that close a cycle.
    """
    groups = strongly_connected_components(node_users(nnet))
    return tuple(group[::-1] for group in reversed(groups))


def node_users(nnet: Nnet) -> list[list[int]]:
    """Returns for each node the nodes that read it directly, ascending: the graph of nodes."""
    position = nnet.node_indexes
    users: list[list[int]] = [[] for _ in nnet.nodes]
    for number, node in enumerate(nnet.nodes):
        for name in nnet.sources_of(node):
            users[position[name]].append(number)
    return users


_MOST_CYCLES = 4
"""The most cycles to use in a group of nodes. One is enough to go far; others help little."""


class Cycle(NamedTuple):
    """A way from a row of a node, through rows that read each other, to a row of the same node.

    Attributes:
        stops: for each node on the way its number, and the distance in t and x of its row from the
            first one; the first is the node where the way begins.
        t: the distance in t from the first row to the last.
        x: the same in x.
        open: for each node on the way, the rows from which the way goes on; -1 for all.
    """

    stops: tuple[tuple[int, int, int], ...]
    t: int
    x: int
    open: tuple[Bits, ...]

    @property
    def moves(self) -> tuple[int, int]:
        """The largest distances in t and x between the first row and another, or neighbours."""
        ts = [*(t for _, t, _ in self.stops), self.t]
        xs = [*(x for _, _, x in self.stops), self.x]
        return _largest_move(ts), _largest_move(xs)


def _largest_move(places: Sequence[int]) -> int:
    steps = (later - earlier for earlier, later in itertools.pairwise(places))
    return max(abs(move) for move in (*places, *steps))


def find_cycles(
    reads: Mapping[int, Mapping[Shift, Bits]], group: Sequence[int]
) -> tuple[Cycle, ...]:
    """Finds some ways round a group of nodes, each with another distance.

    Args:
        reads: for each of the nodes its reads at constant distances, with the rows that have them.
        group: nodes that depend on each other.

    Returns:
        The ways that a depth-first search finds first. None ends at the row where it begins.
    """
    members = set(group)

    def within(node: int) -> Iterator[tuple[Shift, Bits]]:
        return (each for each in reads[node].items() if each[0].source in members)

    found: dict[tuple[int, int], Cycle] = {}
    first = group[-1]
    path, rest, position = [(first, 0, 0)], [within(first)], {first: 0}
    taken: list[Bits] = []
    while path and len(found) < _MOST_CYCLES:
        read = next(rest[-1], None)
        if read is None:
            path.pop()
            rest.pop()
            del taken[-1:]
            continue
        shift, rows = read
        node, t, x = shift.source, path[-1][1] + shift.t, path[-1][2] + shift.x
        if node not in position:
            position[node] = len(path)
            path.append((node, t, x))
            rest.append(within(node))
            taken.append(rows)
        elif position[node] < len(path) and path[position[node]][0] == node:
            stops = path[position[node] :]
            _, first_t, first_x = stops[0]
            way = (t - first_t, x - first_x)
            if any(way) and way not in found:
                relative = tuple((each, t - first_t, x - first_x) for each, t, x in stops)
                passed = (*taken[position[node] :], rows)
                found[way] = Cycle(stops=relative, t=way[0], x=way[1], open=passed)
    return tuple(found.values())


def reads_of_any_row(rule: Rule) -> dict[Shift, Bits]:
    """Returns the reads at constant distances of every row of a rule, for `find_cycles`."""
    pending, found = [rule], {}
    while pending:
        match pending.pop():
            case Shift() as shift:
                found[shift] = -1
            case All(parts) | First(parts):
                pending += reversed(parts)
            case Optional(part):
                pending.append(part)
            case InRows((Shift() as shift, _), rows):
                found[shift] = rows
    return found
