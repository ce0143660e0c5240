"""Removal of epsilons where it adds no arcs.

It comes before general removal, which may add many. Two arcs in a row, one of which reads nothing
(and one of which writes nothing, in a transducer), become one arc if the state between them has
only one leaving arc or only one entering arc. A start counts as an entering arc, a final cost as a
leaving arc. Remaining arcs are reweighted so that paths keep their costs. (Kaldi's RemoveEpsLocal
does the same.)
"""

from __future__ import annotations

import math

import numpy as np

from nnet3_training.chain.fsts.fst import EPSILON
from nnet3_training.chain.fsts.graph import Arc, Graph

_GONE = -1
"""The destination of an arc that was removed."""


def without_local_epsilons(graph: Graph) -> Graph:
    """The trimmed graph without the epsilons whose removal adds no arcs."""
    joining = _Joining(graph.trimmed())  # trimmed: every cycle has a way out
    for state in range(len(joining.arcs)):
        position = 0
        while position < len(joining.arcs[state]):  # which grows
            joining.visit(state, position)
            position += 1
    arcs = [[arc for arc in each if arc.destination != _GONE] for each in joining.arcs]
    return Graph(arcs, joining.finals).trimmed()


class _Joining:
    """A graph in which arcs are joined, with the numbers of arcs that enter and leave states."""

    def __init__(self, graph: Graph) -> None:
        self.arcs = [[arc._replace(cost=_rounded(arc.cost)) for arc in each] for each in graph.arcs]
        self.finals = [_rounded(each) for each in graph.finals]
        self.leaving = [
            len(each) + math.isfinite(final)
            for each, final in zip(self.arcs, self.finals, strict=True)
        ]
        self.entering = [0] * graph.num_states
        if self.entering:
            self.entering[0] = 1
        for each in self.arcs:
            for arc in each:
                self.entering[arc.destination] += 1

    def visit(self, state: int, position: int) -> None:
        """Joins an arc with the arcs after it, where that adds no arcs."""
        arc = self.arcs[state][position]
        following = arc.destination
        if following in (_GONE, state):
            return
        if self.entering[following] == 1 and self.leaving[following] > 1:
            self._take_over(state, position)
        elif self.leaving[following] == 1:
            self._skip(state, position)

    def _add(self, state: int, arc: Arc) -> None:
        self.arcs[state].append(arc)
        self.leaving[state] += 1
        self.entering[arc.destination] += 1

    def _remove(self, state: int, position: int) -> None:
        arc = self.arcs[state][position]
        self.leaving[state] -= 1
        self.entering[arc.destination] -= 1
        self.arcs[state][position] = arc._replace(destination=_GONE)

    def _end(self, state: int, cost: float) -> None:
        """Makes a state final at this cost, beside any final cost that it has."""
        self.leaving[state] += not math.isfinite(self.finals[state])
        self.finals[state] = min(self.finals[state], cost)

    def _take_over(self, state: int, position: int) -> None:
        """Joins the only arc that enters a state with the state's arcs, where possible."""
        arc = self.arcs[state][position]
        following = arc.destination
        moved: list[Arc] = []
        removed = kept = math.inf
        for number, after in enumerate(self.arcs[following]):
            if after.destination == _GONE:
                continue
            if _can_be_joined(arc, after):
                removed = min(removed, after.cost)
                moved.append(_joined(arc, after))
                self._remove(following, number)
            else:
                kept = min(kept, after.cost)
        final = self.finals[following]
        if math.isfinite(final):
            if _is_empty(arc):
                removed = min(removed, final)
                self._end(state, _sum(arc.cost, final))
                self.finals[following] = math.inf
                self.leaving[following] -= 1
            else:
                kept = min(kept, final)
        if math.isfinite(removed):
            if math.isfinite(kept):
                self._reweight(state, position, _sum(kept, -min(removed, kept)))
            else:
                self._remove(state, position)
        for each in moved:
            self._add(state, each)

    def _reweight(self, state: int, position: int, cost: float) -> None:
        """Moves a cost from the arcs of a state onto the only arc that enters the state."""
        arc = self.arcs[state][position]
        following = arc.destination
        self.arcs[state][position] = arc._replace(cost=_sum(arc.cost, cost))
        self.arcs[following] = [
            each._replace(cost=_sum(each.cost, -cost)) for each in self.arcs[following]
        ]
        self.finals[following] = _sum(self.finals[following], -cost)

    def _skip(self, state: int, position: int) -> None:
        """Joins an arc with the only arc after it."""
        arc = self.arcs[state][position]
        following = arc.destination
        is_only = self.entering[following] == 1
        final = self.finals[following]
        if math.isfinite(final):
            if not _is_empty(arc):
                return
            self._end(state, _sum(arc.cost, final))
            if is_only:
                self.finals[following] = math.inf
                self.leaving[following] -= 1
        else:
            number, after = next(
                (number, each)
                for number, each in enumerate(self.arcs[following])
                if each.destination != _GONE
            )
            if not _can_be_joined(arc, after):
                return
            joined = _joined(arc, after)
            if is_only:
                self._remove(following, number)
            self._add(state, joined)
        self._remove(state, position)


def _is_empty(arc: Arc) -> bool:
    return arc.label == arc.output == EPSILON


def _can_be_joined(first: Arc, second: Arc) -> bool:
    return EPSILON in (first.label, second.label) and EPSILON in (first.output, second.output)


def _joined(first: Arc, second: Arc) -> Arc:
    return Arc(
        first.label or second.label,
        _sum(first.cost, second.cost),
        second.destination,
        first.output or second.output,
    )


def _sum(first: float, second: float) -> float:
    """The sum of two costs of arcs as float32, which their files hold.

    Joining states rounds costs later, and the last bit decides in which direction.
    """
    return _rounded(first + second)


def _rounded(cost: float) -> float:
    return float(np.float32(cost))
