"""Which of several ways to do the same is the fastest on this machine, found by trying."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

REPEATS = 4
"""The first calls of a library take long; the least time of so many counts."""

CLEARLY = 0.85
"""A way that takes more than this share of the first one's time is not preferred to it."""


def fastest(
    ways: Mapping[str, Sequence[Callable[[], object]]],
    clock: Callable[[], float] = time.perf_counter,
) -> str:
    """The name of the way that takes the least time: the first, unless another is clearly faster.

    Args:
        ways: By name the calls that do some tasks, as many for each way; all are timed in turns.
            Tasks count alike, however long they take.
        clock: Says the time in seconds.

    Returns:
        A name; always the same if the first way is within 15 % of the fastest.
    """
    names = list(ways)
    times = {name: [float("inf")] * len(ways[name]) for name in names}
    for _ in range(REPEATS):
        for name in names:
            for task, call in enumerate(ways[name]):
                start = clock()
                call()
                times[name][task] = min(times[name][task], clock() - start)
    first = times[names[0]]
    shares = {
        name: sum(own / other for own, other in zip(times[name], first, strict=True)) / len(first)
        for name in names
    }
    quickest = min(names, key=lambda name: shares[name])
    return quickest if shares[quickest] < CLEARLY else names[0]
