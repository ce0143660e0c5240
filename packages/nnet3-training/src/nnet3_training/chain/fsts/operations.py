"""Operations on acceptors: concatenation, removal of epsilons, order of states."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nnet3_training.chain.fsts.fst import Fst
from nnet3_training.errors import ExampleError


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
        rows.append(
            (
                part.sources + first[number],
                part.labels,
                part.costs,
                part.destinations + first[number],
            )
        )
        if not is_last:
            following = parts[number + 1]
            begin, end = following.splits[following.start : following.start + 2]
            for state in np.flatnonzero(np.isfinite(part.final_costs)):
                rows.append(
                    (
                        np.full(end - begin, state + first[number]),
                        following.labels[begin:end],
                        following.costs[begin:end] + part.final_costs[state],
                        following.destinations[begin:end] + first[number + 1],
                    )
                )
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
    order, seen = [fst.start], {fst.start}
    queue = deque(order)
    while queue:
        state = queue.popleft()
        for each in destinations[splits[state] : splits[state + 1]]:
            if each not in seen:
                seen.add(each)
                order.append(each)
                queue.append(each)
    return order


def breadth_first(fst: Fst) -> Fst:
    """The FST with the states that can be reached, nearest to the start first."""
    return renumbered(fst, breadth_first_order(fst))


def reachable(fst: Fst) -> Fst:
    """The FST without the states that cannot be reached; the others keep their order."""
    return renumbered(fst, sorted(breadth_first_order(fst)))
