"""Orders in which a device may run the calls of a graph."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np


def any_order(before: Sequence[Collection[int]], rng: np.random.Generator) -> list[int]:
    """The numbers of calls, in a random order in which each follows those before it.

    Some branches run ahead as far as they can, so that calls without an order are seldom in it.
    """
    left = [len(set(each)) for each in before]
    after: list[list[int]] = [[] for _ in before]
    for number, each in enumerate(before):
        for other in set(each):
            after[other].append(number)
    ready = [int(k) for k in rng.permutation([k for k, count in enumerate(left) if not count])]
    order = []
    while ready:
        order.append(ready.pop())
        for number in rng.permutation(np.array(after[order[-1]], dtype=int)).tolist():
            left[number] -= 1
            if not left[number]:
                ready.append(number)
    assert len(order) == len(before), "calls that wait for each other would never run"
    return order
