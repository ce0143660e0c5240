"""Tests of finding the fastest method."""

from collections.abc import Callable

import pytest
from nnet3_runtime_cuda.cpu.products import MOST_ROUNDS, REPEATS, fastest


class Clock:
    """A clock that only tasks move on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now

    def task(self, *seconds: float) -> Callable[[], None]:
        """A task that takes these times in turn; the last time is repeated."""
        left = list(seconds)

        def run() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1.0, 1.0], [0.5, 0.5], "second"),
        ([1.0, 1.0], [0.95, 0.9], "first"),
        ([1.0, 1.0], [2.0, 0.9], "first"),
        ([1e-6, 1.0], [0.5e-6, 1.1], "second"),
    ],
)
def test_the_clearly_faster_way(first: list[float], second: list[float], expected: str) -> None:
    """If times are about equal the first method stays; short tasks count as much as long ones."""
    clock = Clock()
    ways = {
        "first": [clock.task(seconds) for seconds in first],
        "second": [clock.task(seconds) for seconds in second],
    }

    assert fastest(ways, clock) == expected


def test_the_first_time_does_not_count() -> None:
    """A library with a slow first call is judged by later calls."""
    clock = Clock()
    ways = {"first": [clock.task(1.0)], "second": [clock.task(9.0, 0.5)]}

    assert fastest(ways, clock) == "second"


def test_a_disturbed_round_does_not_decide() -> None:
    """A method that seemed slow while another program had the processor is found to be faster."""
    clock = Clock()
    disturbed = [3.0] * (3 * REPEATS)
    ways = {"first": [clock.task(1.0)], "second": [clock.task(*disturbed, 0.5)]}

    assert fastest(ways, clock) == "second"


def test_what_is_faster_is_not_tried_for_long() -> None:
    """Many repeats are made only if no method is clearly faster."""
    clock = Clock()

    assert fastest({"first": [clock.task(1.0)], "second": [clock.task(0.5)]}, clock) == "second"
    assert clock.now == REPEATS * 1.5

    start = clock.now
    assert fastest({"first": [clock.task(1.0)], "second": [clock.task(1.0)]}, clock) == "first"
    assert clock.now - start == MOST_ROUNDS * REPEATS * 2.0
