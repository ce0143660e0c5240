"""Weighted finite-state transducers: arrays of states and arcs, and acceptors being built."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.values import ReadOnlyArrays, frozen

from nnet3_training.egs.examples import array_of
from nnet3_training.errors import ExampleError

EPSILON = 0
"""The label of an arc that reads nothing."""
NO_STATE = -1
"""The start of an FST without states."""


def _array(values: npt.ArrayLike, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """The values as a read-only array of a type that they have to fit.

    Raises:
        ExampleError: they do not.
    """
    array = array_of(values, "arrays of an FST")
    is_fit = array.size == 0 or np.can_cast(array.dtype, dtype, "same_kind")
    if array.ndim != 1 or not is_fit:
        raise ExampleError(
            f"an FST is made of (entries,) {np.dtype(dtype)}, found {array.shape} of {array.dtype}"
        )
    with np.errstate(over="ignore"):
        stored = array.astype(dtype)
    is_exact = array.dtype.kind not in "iu" or np.array_equal(stored, array)
    if not is_exact or not np.array_equal(np.isinf(stored), np.isinf(array)):
        raise ExampleError(f"numbers of an FST do not fit in {np.dtype(dtype)}")
    return frozen(stored)


def _costs(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    return _array(values, np.float32)


def _positions(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    return _array(values, np.int64)


def _numbers(values: npt.ArrayLike) -> npt.NDArray[np.int32]:
    return _array(values, np.int32)


def _brief(array: npt.NDArray[Any]) -> str:
    return f"<{len(array)}>"


@attrs.frozen(kw_only=True, eq=False)
class Fst(ReadOnlyArrays):
    """A weighted finite-state transducer with tropical weights: costs, negative log-probabilities.

    The arcs of a state lie next to one another.

    Attributes:
        start: Number of the start state; -1 if there are no states.
        final_costs: (states,) float32, the cost of ending there; infinite where no path ends.
        splits: (states + 1,) int64; arcs splits[s] to splits[s + 1] leave state s.
        labels: (arcs,) int32, the labels that arcs read; 0 for nothing.
        output_labels: (arcs,) int32, the labels that arcs write; equal to `labels` in an acceptor.
        costs: (arcs,) float32.
        destinations: (arcs,) int32, the states that arcs lead to.

    Raises:
        ExampleError: the arrays do not fit each other, or name states that there are not.
    """

    start: int
    final_costs: npt.NDArray[np.float32] = attrs.field(converter=_costs, repr=_brief)
    splits: npt.NDArray[np.int64] = attrs.field(converter=_positions, repr=_brief)
    labels: npt.NDArray[np.int32] = attrs.field(converter=_numbers, repr=_brief)
    output_labels: npt.NDArray[np.int32] = attrs.field(converter=_numbers, repr=_brief)
    costs: npt.NDArray[np.float32] = attrs.field(converter=_costs, repr=_brief)
    destinations: npt.NDArray[np.int32] = attrs.field(converter=_numbers, repr=_brief)

    def __attrs_post_init__(self) -> None:
        states, arcs, s = self.num_states, self.num_arcs, self.splits
        if not isinstance(self.start, int | np.integer):
            raise ExampleError(f"the start of an FST must be an integer (got {self.start!r})")
        sizes = {len(each) for each in (self.output_labels, self.costs, self.destinations)}
        if sizes != {arcs}:
            raise ExampleError(f"an FST with {arcs} labels has other arrays of {sorted(sizes)}")
        if len(s) != states + 1 or s[0] != 0 or s[-1] != arcs or bool((np.diff(s) < 0).any()):
            raise ExampleError(f"the splits of {states} states must rise from 0 to {arcs} arcs")
        if not (0 <= self.start < states or (states == 0 and self.start == NO_STATE)):
            raise ExampleError(f"an FST of {states} states cannot start at state {self.start}")
        if arcs and not 0 <= self.destinations.min() <= self.destinations.max() < states:
            wrong = self.destinations[(self.destinations < 0) | (self.destinations >= states)][0]
            raise ExampleError(f"an arc leads to state {wrong} of an FST of {states} states")
        if arcs and min(self.labels.min(), self.output_labels.min()) < 0:
            raise ExampleError("an arc has a negative label")
        if np.isnan(self.costs).any() or np.isnan(self.final_costs).any():
            raise ExampleError("a cost is not a number")

    @property
    def num_states(self) -> int:
        """Number of states."""
        return len(self.final_costs)

    @property
    def num_arcs(self) -> int:
        """Number of arcs."""
        return len(self.labels)

    @property
    def sources(self) -> npt.NDArray[np.int64]:
        """(arcs,), the state that each arc leaves."""
        return np.repeat(np.arange(self.num_states), np.diff(self.splits))

    @property
    def is_acceptor(self) -> bool:
        """Whether the input and output label of every arc are the same."""
        return np.array_equal(self.labels, self.output_labels)

    @property
    def is_top_sorted(self) -> bool:
        """Whether every arc leads to a state with a larger number."""
        return bool((self.destinations > self.sources).all())

    def equals(self, other: Fst) -> bool:
        """Whether states, arcs and costs are the same, number by number."""
        fields = attrs.fields(Fst)
        return all(
            np.array_equal(getattr(self, each.name), getattr(other, each.name)) for each in fields
        )

    @classmethod
    def empty(cls) -> Self:
        """The FST without states."""
        return cls.from_arcs(
            start=NO_STATE, final_costs=(), sources=(), labels=(), costs=(), destinations=()
        )

    @classmethod
    def from_arcs(
        cls,
        *,
        start: int,
        final_costs: npt.ArrayLike,
        sources: npt.ArrayLike,
        labels: npt.ArrayLike,
        costs: npt.ArrayLike,
        destinations: npt.ArrayLike,
        output_labels: npt.ArrayLike | None = None,
    ) -> Self:
        """An FST from arcs in any order; the arcs of each state keep their order.

        Args:
            start: The start state.
            final_costs: (states,).
            sources: (arcs,), the state that each arc leaves.
            labels: (arcs,).
            costs: (arcs,).
            destinations: (arcs,).
            output_labels: (arcs,); as `labels` if not given.

        Raises:
            ExampleError: the arrays do not fit each other, or name states that there are not.
        """
        left, finals = _positions(sources), _costs(final_costs)
        columns = [_numbers(labels), _costs(costs), _numbers(destinations)]
        columns.append(columns[0] if output_labels is None else _numbers(output_labels))
        if any(len(each) != len(left) for each in columns):
            raise ExampleError("the arrays of arcs differ in their length")
        if left.size and not 0 <= left.min() <= left.max() < len(finals):
            raise ExampleError(f"an arc leaves a state that is none of the {len(finals)} states")
        order = np.argsort(left, kind="stable")
        label, cost, destination, output_label = (each[order] for each in columns)
        counts = np.bincount(left, minlength=len(finals))
        return cls(
            start=start,
            final_costs=finals,
            splits=np.concatenate(([0], np.cumsum(counts))),
            labels=label,
            output_labels=output_label,
            costs=cost,
            destinations=destination,
        )


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
        forwards = reached([0], lambda state: [arc.destination for arc in self.arcs[state]])
        backwards: list[list[int]] = [[] for _ in self.arcs]
        for state, arcs in enumerate(self.arcs):
            for arc in arcs:
                backwards[arc.destination].append(state)
        ends = [state for state, cost in enumerate(self.finals) if math.isfinite(cost)]
        useful = set(forwards).intersection(reached(ends, backwards.__getitem__))
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
        labels, outputs = [arc.label for arc in arcs], [arc.output for arc in arcs]
        return Fst(
            start=0,
            final_costs=self.finals,
            splits=list(itertools.accumulate(map(len, self.arcs), initial=0)),
            labels=labels,
            output_labels=outputs if any(outputs) else labels,
            costs=[arc.cost for arc in arcs],
            destinations=[arc.destination for arc in arcs],
        )


Place = TypeVar("Place", bound=Hashable)


def explored(
    start: Place,
    final: Callable[[Place], float],
    arcs: Callable[[Place], Iterable[tuple[int, float, Place]]],
) -> Graph:
    """The graph of the places that can be reached from one, numbered as they are met.

    Args:
        start: The first place.
        final: The cost of ending at a place; called once for each, as it is met.
        arcs: Label, cost and destination of each arc that leaves a place.
    """
    graph = Graph()
    numbers: dict[Place, int] = {}
    places: list[Place] = []

    def number(place: Place) -> int:
        if place not in numbers:
            numbers[place] = graph.add_state(final(place))
            places.append(place)
        return numbers[place]

    number(start)
    for state, place in enumerate(places):  # which grow
        graph.arcs[state] = [Arc(label, cost, number(each)) for label, cost, each in arcs(place)]
    return graph


def reached(states: Sequence[int], following: Callable[[int], Iterable[int]]) -> list[int]:
    """The states that can be reached from `states`, including these, the nearest first."""
    order, seen = list(states), set(states)
    for state in order:  # which grows
        for each in following(state):
            if each not in seen:
                seen.add(each)
                order.append(each)
    return order


def concatenated(parts: Sequence[Fst]) -> Fst:
    """An acceptor of a path through each part, one after the other, without epsilons.

    The final cost of a part is added to the arcs that leave the start of the next part.

    Args:
        parts: At least one; none empty, and no arc leads back to a start state.

    Raises:
        ExampleError: a part is empty, or an arc leads to its start.
    """
    for part in parts:
        if part.num_states == 0:
            raise ExampleError("an FST without states cannot be concatenated")
        if len(parts) > 1 and bool((part.destinations == part.start).any()):
            raise ExampleError("an arc leads to the start of an FST that is to be concatenated")
    first = np.cumsum([0] + [part.num_states for part in parts])
    rows: list[tuple[npt.NDArray[np.generic], ...]] = []
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        here = first[number]
        rows.append((part.sources + here, part.labels, part.costs, part.destinations + here))
        if is_last:
            break
        following = parts[number + 1]
        begin, end = following.splits[following.start : following.start + 2]
        labels, costs = following.labels[begin:end], following.costs[begin:end]
        destinations = following.destinations[begin:end] + first[number + 1]
        for state in np.flatnonzero(np.isfinite(part.final_costs)):
            sources = np.full(end - begin, state + here)
            rows.append((sources, labels, costs + part.final_costs[state], destinations))
    # Backwards: the order of a state's arcs in Kaldi's supervisions after epsilon removal.
    sources, labels, costs, destinations = (
        np.concatenate(column)[::-1] for column in zip(*rows, strict=True)
    )
    finals = np.full(first[-1], np.inf, dtype=np.float32)
    finals[first[-2] :] = parts[-1].final_costs
    return reachable(
        Fst.from_arcs(
            start=parts[0].start,
            final_costs=finals,
            sources=sources,
            labels=labels,
            costs=costs,
            destinations=destinations,
        )
    )


def renumbered(fst: Fst, order: npt.ArrayLike) -> Fst:
    """The FST with the states in this order, without the other states and their arcs.

    Args:
        fst: The FST.
        order: The states that stay, the start among them, each once.
    """
    kept = np.asarray(order, dtype=np.int64)
    number = np.full(fst.num_states, -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    sources, destinations = number[fst.sources], number[fst.destinations]
    stays = (sources >= 0) & (destinations >= 0)
    return Fst.from_arcs(
        start=int(number[fst.start]),
        final_costs=fst.final_costs[kept],
        sources=sources[stays],
        labels=fst.labels[stays],
        output_labels=fst.output_labels[stays],
        costs=fst.costs[stays],
        destinations=destinations[stays],
    )


def breadth_first_order(fst: Fst) -> list[int]:
    """The states that can be reached, nearest to the start first."""
    if fst.num_states == 0:
        return []
    splits, destinations = fst.splits.tolist(), fst.destinations.tolist()
    return reached([fst.start], lambda state: destinations[splits[state] : splits[state + 1]])


def breadth_first(fst: Fst) -> Fst:
    """The FST with the states that can be reached, nearest to the start first."""
    return renumbered(fst, breadth_first_order(fst))


def reachable(fst: Fst) -> Fst:
    """The FST without the states that cannot be reached; the others keep their order."""
    return renumbered(fst, sorted(breadth_first_order(fst)))
