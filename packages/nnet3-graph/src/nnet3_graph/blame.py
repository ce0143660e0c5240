"""Blame: the missing rows that keep others from being computed."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

import attrs

from nnet3_graph.nodes.cycles import find_cycles
from nnet3_graph.reach import Reach
from nnet3_graph.row_sets import rows_reached
from nnet3_graph.rules import All, Leaf, Rule, Shift
from nnet3_graph.sets.bit_layout import BitLayout, Bits


@attrs.frozen
class Blame:
    """The leaves of a node's rule through which its missing rows lack others.

    Attributes:
        leaves: each leaf, with the rows that it keeps from being computed.
    """

    leaves: tuple[Leaf, ...]

    def demand(self, rows: Bits, layout: BitLayout, need: list[Bits]) -> None:
        """Adds to `need` the rows that keep some missing rows from being computed, and maybe more.

        Added rows that are not missing mean nothing.
        """
        for leaf, kept in self.leaves:
            some = rows & kept
            if some:
                leaf.demand(some, layout, need)

    @property
    def shifts(self) -> Mapping[Shift, Bits]:
        """The reads at constant distances, each with the rows that lack the row there."""
        found: dict[Shift, Bits] = {}
        for leaf, rows in self.leaves:
            if isinstance(leaf, Shift):
                found[leaf] = found.get(leaf, 0) | rows
        return found


def find_blame(reach: Reach) -> tuple[list[Blame], list[Bits]]:
    """Finds the rows that keep the missing outputs of a request from being computed.

    Args:
        reach: the rows that are part of the search.

    Returns:
        For each node the leaves to blame, and its rows that are to blame.
    """
    nodes = reach.nodes
    box = reach.layout.box(reach.layout.hull)
    missing = [need & box & ~have for need, have in zip(reach.need, reach.have, strict=True)]
    blame = [Blame(())] * len(missing)
    cycles = []
    for group, recurrent in zip(nodes.groups, nodes.recurrent, strict=True):
        for node in group:
            if missing[node]:
                blame[node] = Blame(tuple(_lacking(nodes.rules[node], group, missing[node], reach)))
        shifts = {node: blame[node].shifts for node in group if recurrent}
        cycles.append(find_cycles(shifts, group) if recurrent else ())
    found = rows_reached(nodes, blame, cycles, reach.layout, missing, reach.missing_outputs)
    return blame, [rows & lost for rows, lost in zip(found, missing, strict=True)]


def _lacking(rule: Rule, group: Container[int], rows: Bits, reach: Reach) -> Iterator[Leaf]:
    """Yields the leaves that keep missing rows from being computed, with the rows that each keeps.

    A row that lacks a row outside of its recurrence does not blame the recurrence as well: the
    search would go round it, and report rows ever further away for the same gap.
    """
    parts = rule.parts if isinstance(rule, All) else (rule,)
    inside = [part for part in parts if any(source in group for source in part.sources)]
    outside = All(tuple(part for part in parts if part not in inside))
    yield from outside.blame(rows, reach.layout, reach.have)
    rows &= outside.available(rows, reach.layout, reach.have)
    yield from All(tuple(inside)).blame(rows, reach.layout, reach.have)
