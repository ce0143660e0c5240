"""FSTs under construction: states and arcs can be added and changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import attrs

from nnet3_training.chain.fsts.fst import Fst


class Arc(NamedTuple):
    """An arc of an FST.

    Attributes:
        label: The label that it reads; 0 for nothing.
        cost: Its cost.
        destination: The state that it leads to.
        output: The label that it writes, in a transducer; 0 for nothing, and in an acceptor.
    """

    label: int
    cost: float
    destination: int
    output: int = 0


@attrs.define(eq=False)
class Graph:
    """An FST with tropical weights; state 0 is the start.

    Attributes:
        arcs: For each state, the arcs that leave it.
        finals: For each state, the cost of ending there; infinite where no path ends.
    """

    arcs: list[list[Arc]] = attrs.field(factory=list)
    finals: list[float] = attrs.field(factory=list)

    @property
    def num_states(self) -> int:
        """Number of states."""
        return len(self.arcs)

    @property
    def num_arcs(self) -> int:
        """Number of arcs of all states."""
        return sum(map(len, self.arcs))

    def add_state(self, final: float = math.inf) -> int:
        """Adds a state; returns its number."""
        self.arcs.append([])
        self.finals.append(final)
        return len(self.arcs) - 1

    def kept(self, states: Sequence[int]) -> Graph:
        """The graph of some states, numbered in this order, the start first, and their arcs."""
        number = {state: new for new, state in enumerate(states)}
        return Graph(
            [
                [arc._replace(destination=number[arc.destination])
                 for arc in self.arcs[state] if arc.destination in number]
                for state in states
            ],
            [self.finals[state] for state in states],
        )  # fmt: skip

    def trimmed(self) -> Graph:
        """The graph without states that are on no path from start to end; may be empty."""
        if not self.arcs:
            return Graph()
        forwards = _reached([0], [[arc.destination for arc in arcs] for arcs in self.arcs])
        backwards: list[list[int]] = [[] for _ in self.arcs]
        for state, arcs in enumerate(self.arcs):
            for arc in arcs:
                backwards[arc.destination].append(state)
        ends = [state for state, cost in enumerate(self.finals) if math.isfinite(cost)]
        useful = forwards & _reached(ends, backwards)
        return self.kept(sorted(useful)) if 0 in useful else Graph()

    @classmethod
    def of(cls, fst: Fst) -> Self:
        """The graph of an FST; the start and state 0 swap their numbers."""
        order = list(range(fst.num_states))
        if fst.num_states:
            order[0], order[fst.start] = fst.start, 0
        splits = fst.splits.tolist()
        columns = zip(
            fst.labels.tolist(),
            fst.costs.tolist(),
            [order[state] for state in fst.destinations.tolist()],
            [0] * fst.num_arcs if fst.is_acceptor else fst.output_labels.tolist(),
            strict=True,
        )
        arcs = [Arc(*each) for each in columns]
        finals = fst.final_costs.tolist()
        return cls(
            [arcs[splits[state] : splits[state + 1]] for state in order],
            [finals[state] for state in order],
        )

    def fst(self) -> Fst:
        """The FST as arrays."""
        if not self.arcs:
            return Fst.empty()
        arcs = [arc for each in self.arcs for arc in each]
        splits = [0]
        for each in self.arcs:
            splits.append(splits[-1] + len(each))
        labels, outputs = [arc.label for arc in arcs], [arc.output for arc in arcs]
        return Fst(
            start=0,
            final_costs=self.finals,
            splits=splits,
            labels=labels,
            output_labels=outputs if any(outputs) else labels,
            costs=[arc.cost for arc in arcs],
            destinations=[arc.destination for arc in arcs],
        )


def _reached(states: Sequence[int], following: Sequence[Sequence[int]]) -> set[int]:
    """The states that can be reached from `states`, including these."""
    seen, left = set(states), list(states)
    while left:
        for state in following[left.pop()]:
            if state not in seen:
                seen.add(state)
                left.append(state)
    return seen
