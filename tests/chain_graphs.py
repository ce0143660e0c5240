"""Comparing FSTs up to the numbers of their states."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from nnet3_training import Fst

Edges = list[list[tuple[int, float, int]]]


def edges(fst: Fst) -> tuple[Edges, Edges]:
    """The arcs that leave each state, and those that enter it: label, cost, the other state."""
    leaving: Edges = [[] for _ in range(fst.num_states)]
    entering: Edges = [[] for _ in range(fst.num_states)]
    columns = (fst.sources, fst.labels, fst.costs, fst.destinations)
    for source, label, cost, destination in zip(*(c.tolist() for c in columns), strict=True):
        leaving[source].append((label, cost, destination))
        entering[destination].append((label, cost, source))
    return leaving, entering


def largest_difference(one: Fst, other: Fst) -> float:
    """The largest difference in costs between matched states; infinite if there is no match.

    States are distinguished by the labels around them, in rounds. States that still look alike are
    matched in the order of their costs.
    """
    if (one.num_states, one.num_arcs) != (other.num_states, other.num_arcs):
        return math.inf
    fsts = [one, other]
    graphs = [edges(fst) for fst in fsts]
    kinds: list[list[object]] = [
        [(state == fst.start, bool(np.isfinite(fst.final_costs[state])))
         for state in range(fst.num_states)]
        for fst in fsts
    ]  # fmt: skip
    count = 0
    while True:
        looks = [_looks(*graph, kind) for graph, kind in zip(graphs, kinds, strict=True)]
        numbers: dict[object, int] = {}
        for look in (*looks[0], *looks[1]):
            numbers.setdefault(look, len(numbers))
        kinds = [[numbers[look] for look in each] for each in looks]
        if Counter(kinds[0]) != Counter(kinds[1]):
            return math.inf
        if len(numbers) == one.num_states:
            break
        if len(numbers) == count:
            alike = next(kind for kind, times in Counter(kinds[0]).items() if times > 1)
            for graph, kind in zip(graphs, kinds, strict=True):
                states = [state for state, each in enumerate(kind) if each == alike]
                kind[min(states, key=lambda s, g=graph, k=kind: _costs(g, k, s))] = -1
        count = len(numbers)
    place = {kind: state for state, kind in enumerate(kinds[1])}
    worst = 0.0
    for state, kind in enumerate(kinds[0]):
        mine = sorted((label, kinds[0][to], cost) for label, cost, to in graphs[0][0][state])
        yours = sorted((label, kinds[1][to], cost) for label, cost, to in graphs[1][0][place[kind]])
        worst = max([worst, *(abs(a[2] - b[2]) for a, b in zip(mine, yours, strict=True))])
        if np.isfinite(one.final_costs[state]):
            worst = max(worst, abs(one.final_costs[state] - other.final_costs[place[kind]]))
    return float(worst)


def _looks(leaving: Edges, entering: Edges, kinds: Sequence[object]) -> list[object]:
    return [
        (
            kind,
            tuple(sorted((label, kinds[to]) for label, _, to in leaving[state])),
            tuple(sorted((label, kinds[to]) for label, _, to in entering[state])),
        )
        for state, kind in enumerate(kinds)
    ]


def _costs(graph: tuple[Edges, Edges], kinds: Sequence[object], state: int) -> list[float]:
    return [
        cost
        for arcs in graph
        for _, _, cost in sorted((label, kinds[to], cost) for label, cost, to in arcs[state])
    ]
