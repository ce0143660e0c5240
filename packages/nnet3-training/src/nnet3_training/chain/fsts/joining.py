"""Joining of states of an acceptor that the same arcs leave.

States are joined if arcs with the same labels and costs leave them for states that are joined, too.
This is the coarsest partition that refines a first one, found by splitting classes until none is
split (Hopcroft 1971; since labels do not determine paths here, every round looks at all arcs).

Several results are correct. Two rules of OpenFst choose one of them, so that graphs have the same
states as Kaldi's (apart from ties in sorting and heaps, which are not reproduced):

- States begin in one class only if they have the same sequence of labels with costs, in the order
  of their arcs, with adjacent repetitions counted once. So different orders keep states apart.
- Labels with costs are numbered as they are met, and the arcs of a joined state are in the order
  of these numbers, then of their destinations. The state with the lowest number stands for a class.
"""

from __future__ import annotations

import itertools

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_training.chain.fsts.fst import Fst

Numbers = npt.NDArray[np.int64]
Costs = npt.NDArray[np.float32]

_END = -1
"""The label of the arcs that lead from final states to a state behind them."""


def joined(fst: Fst, delta: float) -> Fst:
    """The acceptor with rounded costs and equal states joined.

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


@attrs.frozen(eq=False)
class _Arcs:
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
        costs = _rounded(np.concatenate([fst.costs, fst.final_costs[finals]]), delta)[order]
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


def _rounded(costs: Costs, delta: np.float32) -> Costs:
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
