"""Which of several ways to do the same is the fastest on this machine, found by trying."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

REPEATS = 4
"""The first calls of a library take long; the least time of so many counts."""

MOST_ROUNDS = 8
"""Another program can take the processor, or its caches, from all repeats of one way: so that
nothing is found to be faster is believed only after so many times as many repeats."""

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
    first = next(iter(ways))
    times = {name: [float("inf")] * len(calls) for name, calls in ways.items()}
    for _ in range(MOST_ROUNDS):
        for _ in range(REPEATS):
            for name, calls in ways.items():
                _time(calls, times[name], clock)
        shares = {name: _share(own, times[first]) for name, own in times.items()}
        quickest = min(shares, key=lambda name: shares[name])
        if shares[quickest] < CLEARLY:
            return quickest
    return first


def _time(
    calls: Sequence[Callable[[], object]], least: list[float], clock: Callable[[], float]
) -> None:
    """Does each task once; least: of each, the least time so far."""
    for task, call in enumerate(calls):
        start = clock()
        call()
        least[task] = min(least[task], clock() - start)


def _share(own: Sequence[float], other: Sequence[float]) -> float:
    """The mean of the times of some tasks, relative to those of another way."""
    return sum(mine / theirs for mine, theirs in zip(own, other, strict=True)) / len(own)
