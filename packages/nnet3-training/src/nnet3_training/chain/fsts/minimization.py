"""What makes FSTs smaller: local epsilons removed, weights pushed, equal states joined."""

from __future__ import annotations

import itertools
import logging
import math
from typing import NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_training.chain.fsts.fst import EPSILON, Arc, Fst, Graph

_GONE = -1
"""The destination of an arc that was removed."""


def without_local_epsilons(graph: Graph) -> Graph:
    """The trimmed graph without the epsilons whose removal adds no arcs.

    It comes before general removal, which may add many. Two arcs in a row, one of which reads
    nothing (and one of which writes nothing, in a transducer), become one arc if the state between
    them has only one leaving arc or only one entering arc. A start counts as an entering arc, a
    final cost as a leaving arc. Remaining arcs are reweighted so that paths keep their costs.
    (Kaldi's RemoveEpsLocal does the same.)
    """
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


Numbers = npt.NDArray[np.int64]
Costs = npt.NDArray[np.float32]

_END = -1
"""The label of the arcs that lead from final states to a state behind them."""


def joined(fst: Fst, delta: float) -> Fst:
    """The acceptor with rounded costs and equal states joined.

    States are joined if arcs with the same labels and costs leave them for states that are joined,
    too. This is the coarsest partition that refines a first one, found by splitting classes until
    none is split (Hopcroft 1971; since labels do not determine paths here, every round looks at all
    arcs). Several results are correct. Two rules of OpenFst choose one of them, so that graphs have
    the same states as Kaldi's (apart from ties in sorting and heaps, which are not reproduced):

    - States begin in one class only if they have the same sequence of labels with costs, in the
      order of their arcs, with adjacent repetitions counted once. So different orders keep states
      apart.
    - Labels with costs are numbered as they are met, and the arcs of a joined state are in the
      order of these numbers, then of their destinations. The state with the lowest number stands
      for a class.

    Args:
        fst: An acceptor.
        delta: Costs are rounded to multiples of it.
    """
    if not fst.num_states:
        return fst
    arcs = _Arcs.of(fst, np.float32(delta))
    classes = _coarsest(arcs, _first_classes(arcs))
    _, representatives = np.unique(classes, return_index=True)
    representatives.sort()
    number = np.empty(len(representatives), dtype=np.int64)
    number[classes[representatives]] = np.arange(len(representatives))
    kept = np.isin(arcs.sources, representatives)
    columns = number[classes[arcs.sources]], arcs.kinds, number[classes[arcs.destinations]]
    rows = np.unique(np.stack([each[kept] for each in columns], axis=1), axis=0)
    sources, kinds, destinations = rows.T
    labels, costs = arcs.labels[kinds], arcs.costs[kinds]
    ends = labels == _END
    finals = np.full(len(representatives) - 1, np.inf, dtype=np.float32)
    finals[sources[ends]] = costs[ends]
    return Fst.from_arcs(
        start=int(number[classes[fst.start]]),
        final_costs=finals,
        sources=sources[~ends],
        labels=labels[~ends],
        costs=costs[~ends],
        destinations=destinations[~ends],
    )


class _Arcs(NamedTuple):
    """Arcs with rounded costs, including arcs from final states to one extra state at the end.

    Attributes:
        num_states: Number of states, including the extra one.
        sources: (arcs,), rising.
        kinds: (arcs,), which label and cost each has.
        destinations: (arcs,).
        labels: (kinds,).
        costs: (kinds,).
    """

    num_states: int
    sources: Numbers
    kinds: Numbers
    destinations: Numbers
    labels: Numbers
    costs: Costs

    @classmethod
    def of(cls, fst: Fst, delta: np.float32) -> _Arcs:
        last = fst.num_states
        finals = np.flatnonzero(np.isfinite(fst.final_costs))
        ends = np.full(len(finals), _END)
        sources = np.concatenate([fst.sources, finals])
        order = np.argsort(sources, kind="stable")
        labels = np.concatenate([fst.labels, ends]).astype(np.int64)[order]
        costs = _multiples(np.concatenate([fst.costs, fst.final_costs[finals]]), delta)[order]
        destinations = np.concatenate([fst.destinations, np.full(len(finals), last)])
        pairs = np.stack([labels, costs.view(np.int32).astype(np.int64)], axis=1)
        _, first, kinds = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        met = np.argsort(first)
        return cls(
            num_states=last + 1,
            sources=sources[order],
            kinds=np.argsort(met)[kinds.reshape(-1)],
            destinations=destinations[order].astype(np.int64),
            labels=labels[first[met]],
            costs=costs[first[met]],
        )


def _multiples(costs: Costs, delta: np.float32) -> Costs:
    with np.errstate(over="ignore"):
        rounded: Costs = np.floor(costs / delta + np.float32(0.5)) * delta
    return rounded + np.float32(0.0)  # -0 becomes 0


def _first_classes(arcs: _Arcs) -> Numbers:
    """For each state, a number for its sequence of labels with costs, without repetitions."""
    changes = np.ones(len(arcs.sources), dtype=bool)
    changes[1:] = (np.diff(arcs.sources) != 0) | (np.diff(arcs.kinds) != 0)
    classes = _numbered(arcs.num_states, arcs.sources[changes], arcs.kinds[changes])
    classes[-1] = classes.max() + 1  # no arc leaves the extra state
    return classes


def _coarsest(arcs: _Arcs, classes: Numbers) -> Numbers:
    """The classes, split until all states of each have the same arcs to the same classes."""
    count = len(np.unique(classes))
    while True:
        _, targets = np.unique(
            arcs.kinds * arcs.num_states + classes[arcs.destinations], return_inverse=True
        )
        size = int(targets.max(initial=0)) + 1
        sources, targets = np.divmod(np.unique(arcs.sources * size + targets), size)
        # The old class comes first, so that the new classes refine the old ones.
        sources = np.concatenate([np.arange(arcs.num_states), sources])
        order = np.argsort(sources, kind="stable")
        classes = _numbered(
            arcs.num_states, sources[order], np.concatenate([classes, targets])[order]
        )
        found = int(classes.max()) + 1
        if found == count:
            return classes
        count = found


def _numbered(num_states: int, sources: Numbers, values: Numbers) -> Numbers:
    """For each state a number, the same for those with the same sequence of values."""
    splits = np.searchsorted(sources, np.arange(num_states + 1)).tolist()
    data, width = values.astype(np.int64).tobytes(), np.dtype(np.int64).itemsize
    numbers: dict[bytes, int] = {}
    found = [
        numbers.setdefault(data[begin * width : end * width], len(numbers))
        for begin, end in itertools.pairwise(splits)
    ]
    return np.array(found, dtype=np.int64)


_LOGGER = logging.getLogger(__name__)

Vector = npt.NDArray[np.float64]

_DIAGONAL = 0.1
_MAX_ITERATIONS = 200
_CHECKED = 5
"""Number of iterations between two checks of the sums."""


def _probabilities(costs: npt.NDArray[np.float32]) -> Vector:
    """The probabilities of costs, rounded to float32 as the costs are.

    Joining states rounds costs later, where the last bit can decide; so it must be Kaldi's.
    """
    return np.exp(-costs.astype(np.float64)).astype(np.float32).astype(np.float64)


def pushed(fst: Fst, delta: float) -> Fst:
    """The FST with its weights pushed: the probabilities of every state have the same sum.

    The probabilities of arcs are a matrix P over states; a final cost counts as an arc to the
    start. Let v be the eigenvector of its largest eigenvalue. Then all rows of P'(i, j) =
    P(i, j) v(j) / v(i) sum to that eigenvalue, and paths keep their costs (Hannemann et al.,
    "Combining forward and backward search in decoding", ICASSP 2013). The vector is found by the
    power method on P + 0.1 I, since eigenvalues of P may differ in their phase only.

    Args:
        fst: An FST; all its states are on paths to an end.
        delta: Largest difference between the logarithms of the sums. If 200 iterations do not reach
            it, a warning is logged.
    """
    if not fst.num_states:
        return fst
    sources, destinations = fst.sources, fst.destinations
    probs, ends = _probabilities(fst.costs), _probabilities(fst.final_costs)
    vector = np.full(fst.num_states, 1.0 / np.sqrt(fst.num_states))

    def product(vector: Vector) -> Vector:
        result: Vector = ends * vector[fst.start]
        result += np.bincount(sources, probs * vector[destinations], minlength=fst.num_states)
        return result

    for iteration in range(_MAX_ITERATIONS):
        following = _DIAGONAL * vector + product(vector)
        vector = following / np.linalg.norm(following)
        if iteration and iteration % _CHECKED == 0:
            sums = product(vector) / vector
            if np.log(sums.max() / sums.min()) <= delta:
                break
    else:
        _LOGGER.warning("The weights of an FST were pushed without reaching equal sums.")
    potentials = -np.log(vector)
    return attrs.evolve(
        fst,
        final_costs=fst.final_costs + (potentials[fst.start] - potentials).astype(np.float32),
        costs=fst.costs + potentials[destinations] - potentials[sources],
    )
