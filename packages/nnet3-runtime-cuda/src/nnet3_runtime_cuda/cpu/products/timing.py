"""The choice of the fastest of several ways on this machine, by timing them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

REPEATS = 4
"""The number of repeats whose least time counts, because first calls of a library are slow."""

MOST_ROUNDS = 8
"""The most rounds of repeats before the first way is chosen: another program can slow down all
repeats of one way."""

CLEARLY = 0.85
"""Another way must take at most this share of the time of the first way."""


def fastest(
    ways: Mapping[str, Sequence[Callable[[], object]]],
    clock: Callable[[], float] = time.perf_counter,
) -> str:
    """The name of the way that takes the least time: the first, unless another is clearly faster.

    Args:
        ways: By name the calls for some tasks, the same tasks for each way; they are timed in
            turns. All tasks have the same weight, however long they take.
        clock: Returns the time in seconds.

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
    """Runs each task once, and updates `least`, the least time of each task."""
    for task, call in enumerate(calls):
        start = clock()
        call()
        least[task] = min(least[task], clock() - start)


def _share(own: Sequence[float], other: Sequence[float]) -> float:
    """The mean over tasks of the time of one way relative to that of another."""
    return sum(mine / theirs for mine, theirs in zip(own, other, strict=True)) / len(own)
