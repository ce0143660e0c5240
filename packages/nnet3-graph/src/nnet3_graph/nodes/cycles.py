"""Cycles of nodes that read each other's rows at constant distances."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import attrs

from nnet3_graph.rules import All, First, InRows, Optional, Rule, Shift
from nnet3_graph.sets.bit_layout import Bits

_MOST_CYCLES = 4
"""The most cycles to use in a group of nodes. One is enough to go far; others help little."""


@attrs.frozen(kw_only=True)
class Cycle:
    """A way from a row of a node, through rows that read each other, to a row of the same node.

    Attributes:
        stops: for each node on the way its number, and the distance in t and x of its row from the
            first one; the first is the node where the way begins.
        t: the distance in t from the first row to the last.
        x: the same in x.
        open: for each node on the way, the rows from which the way goes on; -1 for all.
        moves: the largest distance in t, and the largest in x, between the first row and another
            one, or between two neighbouring rows.
    """

    stops: tuple[tuple[int, int, int], ...]
    t: int
    x: int
    open: tuple[Bits, ...]
    moves: tuple[int, int] = attrs.field(init=False)

    @moves.default
    def _largest_moves(self) -> tuple[int, int]:
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
