"""Comparing FSTs up to the numbers of their states."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from nnet3_training import Fst

Arcs = list[tuple[int, int, int, float]]


def largest_difference(one: Fst, other: Fst) -> float:
    """The largest difference in costs between matched states; infinite if there is no match.

    States are distinguished by the labels around them, in rounds. States that still look alike are
    matched in the order of their costs.
    """
    if (one.num_states, one.num_arcs) != (other.num_states, other.num_arcs):
        return math.inf
    fsts = [one, other]
    graphs = [_arcs(fst) for fst in fsts]
    kinds: list[list[object]] = [
        [(state == fst.start, cost < math.inf) for state, cost in enumerate(fst.final_costs)]
        for fst in fsts
    ]
    count = 0
    while True:
        looks = [_looks(*each) for each in zip(graphs, kinds, strict=True)]
        numbers = {look: number for number, look in enumerate(dict.fromkeys(looks[0] + looks[1]))}
        kinds = [[numbers[look] for look in each] for each in looks]
        if Counter(kinds[0]) != Counter(kinds[1]):
            return math.inf
        if len(numbers) == one.num_states:
            break
        if len(numbers) == count:
            alike = next(kind for kind, times in Counter(kinds[0]).items() if times > 1)
            for graph, kind in zip(graphs, kinds, strict=True):
                states = [state for state, each in enumerate(kind) if each == alike]
                kind[min(states, key=_costs(graph, kind).__getitem__)] = -1
        count = len(numbers)
    figures = [_figures(*each) for each in zip(fsts, graphs, kinds, strict=True)]
    return float(np.abs(figures[0] - figures[1]).max(initial=0.0))


def _arcs(fst: Fst) -> Arcs:
    """Source, label, destination and cost of each arc."""
    columns = fst.sources, fst.labels, fst.destinations, fst.costs
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _around(arcs: Arcs, kinds: list[object]) -> list[list[tuple[object, ...]]]:
    """Of each state the arcs, sorted: whether it enters, its label, the other state, its cost."""
    around: list[list[tuple[object, ...]]] = [[] for _ in kinds]
    for source, label, to, cost in arcs:
        around[source].append((False, label, kinds[to], cost))
        around[to].append((True, label, kinds[source], cost))
    return [sorted(each) for each in around]


def _looks(arcs: Arcs, kinds: list[object]) -> list[tuple[object, ...]]:
    """What each state looks like, without costs."""
    around = _around(arcs, kinds)
    return [(kind, *(arc[:3] for arc in each)) for kind, each in zip(kinds, around, strict=True)]


def _costs(arcs: Arcs, kinds: list[object]) -> list[list[object]]:
    """The costs around each state, in the order of its arcs."""
    return [[arc[3] for arc in each] for each in _around(arcs, kinds)]


def _figures(fst: Fst, arcs: Arcs, kinds: list[int]) -> np.ndarray:
    """All costs, in the order of the kinds of states, each of which is one."""
    ordered = sorted((kinds[source], label, kinds[to], cost) for source, label, to, cost in arcs)
    final = fst.final_costs[np.argsort(kinds)]
    return np.array([*(arc[3] for arc in ordered), *final[np.isfinite(final)]])
