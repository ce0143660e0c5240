"""Bounds in t and x of the rows that each node can compute, and that others want from it.

Two passes over hulls come before all sets of rows. The forward pass finds the rows that might be
computable at all from the rows of the request. The backward pass finds which of these the outputs
might read. The bounds limit the sets of rows of recurrent networks, whose dependencies have no end,
and keep needless rows out of all sets.
"""

from __future__ import annotations

from collections.abc import Mapping

from nnet3_graph.nodes.rules import NodeRules
from nnet3_graph.sets.hull import INFINITY, NOWHERE, Hull, join, meet, widened

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
        Hull(
            limit.t_first if hull.t_first == -INFINITY else hull.t_first,
            limit.t_last if hull.t_last == INFINITY else hull.t_last,
            limit.x_first if hull.x_first == -INFINITY else hull.x_first,
            limit.x_last if hull.x_last == INFINITY else hull.x_last,
        )
        if hull and not hull.is_finite
        else hull
        for hull in hulls
    ]
