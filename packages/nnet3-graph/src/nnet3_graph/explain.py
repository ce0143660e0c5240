"""The reason why an output cannot be computed, and the rows that the user has to supply."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterator, Sequence

import numpy as np
from nnet3_descriptors import ComponentNode, InputNode, Nnet
from nnet3_descriptors.indexes import IndexArray, N, T, X, index_order

from nnet3_graph.context import compute_context
from nnet3_graph.errors import ContextError, MissingFrames, NotComputableError, Row
from nnet3_graph.nodes import NodeRules, find_cycles
from nnet3_graph.rows import Reach, rows_reached
from nnet3_graph.rules import NEVER, All, Leaf, Rule, Shift
from nnet3_graph.sets.bits import BitLayout, Bits
from nnet3_graph.sets.index_set import Grid, IndexSet, Patterns

Blame = tuple[Leaf, ...]
"""The leaves of a node's rule through which its missing rows lack others.

Each has the rows that it keeps from being computed.
"""


def demand_blamed(blame: Blame, rows: Bits, layout: BitLayout, need: list[Bits]) -> None:
    """Adds to `need` the rows that keep some missing rows from being computed, and maybe more.

    Added rows that are not missing mean nothing.
    """
    for leaf, kept in blame:
        some = rows & kept
        if some:
            leaf.demand(some, layout, need)


def _shifts(blame: Blame) -> dict[Shift, Bits]:
    """Returns the reads at constant distances, each with the rows that lack the row there."""
    found: dict[Shift, Bits] = {}
    for leaf, rows in blame:
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
    blame: list[Blame] = [()] * len(missing)
    cycles = []
    for group, recurrent in zip(nodes.groups, nodes.recurrent, strict=True):
        for node in group:
            if missing[node]:
                blame[node] = tuple(_lacking(nodes.rules[node], group, missing[node], reach))
        shifts = {node: _shifts(blame[node]) for node in group if recurrent}
        cycles.append(find_cycles(shifts, group) if recurrent else ())
    readers = [functools.partial(demand_blamed, each) for each in blame]
    found = rows_reached(nodes, readers, cycles, reach.layout, missing, reach.missing_outputs)
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


EXPLAINED_STEPS = (300, 20)
"""How far in t and x a recurrence is followed in search of missing inputs."""


def explain(nnet: Nnet, patterns: Patterns, reach: Reach) -> NotComputableError:
    """Returns the error for outputs that cannot be computed.

    Args:
        nnet: the network.
        patterns: the sequences and their patterns.
        reach: the rows of the search, also those that no input could ever make computable.
    """
    nodes = reach.nodes
    grid = Grid(layout=reach.layout, patterns=patterns)
    missing = reach.missing_outputs
    blame, blamed = find_blame(reach)
    first = min(missing)
    start = (first, _first_bit(reach.layout, missing[first]))
    chain = _chain(nodes, reach.layout, blame, blamed, start)
    try:
        context = compute_context(nnet)
    except ContextError:
        context = None
    return NotComputableError(
        missing_outputs={
            nnet.nodes[node].name: IndexSet(grid=grid, bits=rows).indexes
            for node, rows in missing.items()
        },
        num_requested={
            nnet.nodes[node].name: len(IndexSet(grid=grid, bits=rows))
            for node, rows in reach.outputs.items()
        },
        chain=_rows(nnet, grid, chain),
        missing_inputs=[
            missing
            for node, definition in enumerate(nnet.nodes)
            if isinstance(definition, InputNode) and blamed[node]
            for missing in _missing_frames(
                definition.name, patterns, reach.layout.indexes(blamed[node])
            )
        ],
        context=context,
        reason=_reason(nnet, nodes, chain[-1][0]),
    )


def _reason(nnet: Nnet, nodes: NodeRules, last: int) -> str:
    """Returns the reason why the last row of the chain cannot be computed."""
    if isinstance(nnet.nodes[last], InputNode):
        return "which is not given"
    for group, recurrent in zip(nodes.groups, nodes.recurrent, strict=True):
        if recurrent and last in group:
            states = [nnet.nodes[node] for node in group]
            givable = [node.name for node in states if isinstance(node, ComponentNode)]
            return (
                f"which depends on itself without end: no first value of the recurrence is given "
                f"(rows of {', '.join(map(repr, givable))} could be)"
            )
    return "which is never computed at this t"


def _chain(
    nodes: NodeRules,
    layout: BitLayout,
    blame: Sequence[Blame],
    blamed: Sequence[Bits],
    start: tuple[int, int],
) -> list[tuple[int, int]]:
    """Follows a missing row to a row that it needs and that is not given.

    Args:
        nodes: the rules of the network.
        layout: the layout of the bits.
        blame: for each node, the leaves to blame.
        blamed: for each node, its rows that are to blame.
        start: the node of the missing row, and its bit.

    Returns:
        Pairs of a node and the number of a bit, which stands for a row.
    """
    group_of = {member: group for group in map(frozenset, nodes.groups) for member in group}
    is_input_missing = any(blamed[node] for node, rule in enumerate(nodes.rules) if rule == NEVER)
    sources = [rule.sources for rule in nodes.rules]
    chain, passed = {start: None}, {start[0]}
    found = [0] * len(blamed)
    node, bit = start
    while True:
        demand_blamed(blame[node], 1 << bit, layout, found)
        steps = [
            (source, (rows & -rows).bit_length() - 1)
            for source in sources[node]
            if (rows := found[source] & blamed[source])
        ]
        for source in sources[node]:
            found[source] = 0
        # Prefer a row that leads out of the recurrence; else take the first that the descriptor
        # names.
        steps.sort(key=lambda step: step[0] in group_of[node])
        steps = [step for step in steps if step not in chain]
        if not steps or (not is_input_missing and steps[0][0] in passed):
            return list(chain)
        node, bit = steps[0]
        chain[node, bit] = None
        passed.add(node)


def _first_bit(layout: BitLayout, rows: Bits) -> int:
    """Returns the bit of the first of some rows, in the order of indexes."""
    indexes = layout.indexes(rows)
    return layout.set_of(indexes[index_order(indexes)[:1]]).bit_length() - 1


def _rows(nnet: Nnet, grid: Grid, chain: Sequence[tuple[int, int]]) -> list[Row]:
    """Returns the rows of a chain, each for the first sequence of its pattern."""
    indexes = grid.layout.indexes_at(np.array([bit for _, bit in chain]))
    patterns = grid.patterns
    indexes[:, N] = patterns.sequences[patterns.representatives[indexes[:, N]]]
    names = [nnet.nodes[node].name for node, _ in chain]
    return [(name, (n, t, x)) for name, (n, t, x) in zip(names, indexes.tolist(), strict=True)]


def _missing_frames(name: str, patterns: Patterns, indexes: IndexArray) -> list[MissingFrames]:
    """Returns the missing rows of an input node, one object for all sequences with the same gaps.

    Args:
        name: name of the node.
        patterns: the sequences and their patterns.
        indexes: (K, 3) the missing rows, with the pattern as n.
    """
    patterns_by_gap: dict[tuple[int, tuple[tuple[int, int], ...]], list[int]] = {}
    for pattern in range(patterns.num_patterns):
        rows = indexes[indexes[:, N] == pattern]
        for x in sorted(set(rows[:, X].tolist())):
            gap = (x, _runs(sorted(rows[rows[:, X] == x, T].tolist())))
            patterns_by_gap.setdefault(gap, []).append(pattern)
    missing = []
    for (x, ranges), members in patterns_by_gap.items():
        sequences = patterns.sequences[np.isin(patterns.pattern_of, members)].tolist()
        is_all = len(sequences) == patterns.num_sequences
        missing.append(MissingFrames(name, tuple(sequences), is_all, x, ranges))
    return missing


def _runs(times: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Returns first and last of each run of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for time in times:
        if runs and runs[-1][1] == time - 1:
            runs[-1] = (runs[-1][0], time)
        else:
            runs.append((time, time))
    return tuple(runs)
