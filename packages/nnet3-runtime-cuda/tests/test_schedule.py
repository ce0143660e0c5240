"""When estimates of the natural gradient begin and change, on a device as on the processor."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from nnet3_runtime_cuda.cpu.natural_gradient.estimate import OnlineNaturalGradient
from nnet3_runtime_cuda.cuda.host_steps import ALWAYS, Clock, Schedule
from nnet3_runtime_cuda.operations.gradients import FisherEstimate, NaturalGradientOptions

PERIODS = (1, 4, 3)


@given(
    segments=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=3),
    runs=st.lists(st.integers(0, 2), min_size=1, max_size=40),
)
def test_decisions_are_those_of_the_processor(segments: list[list[int]], runs: list[int]) -> None:
    """Segments that use estimates in any order decide as if at each use."""
    clock = Clock()
    assert [clock.add() for _ in PERIODS] == [0, 1, 2]
    bound = []
    for estimates in segments:
        schedule = Schedule(clock)
        uses = [schedule.use(estimate, PERIODS[estimate]) for estimate in estimates]
        union = schedule.any_of([use.moves for use in uses])
        bound.append((schedule, estimates, uses, union))
    slow = [
        OnlineNaturalGradient(FisherEstimate(NaturalGradientOptions(update_period=n)))
        for n in PERIODS
    ]
    for run in runs:
        schedule, estimates, uses, union = bound[run % len(bound)]
        flags = schedule.next()
        moved = []
        for estimate, use in zip(estimates, uses, strict=True):
            natural = slow[estimate]
            assert flags[use.begins] == (natural._minibatches == 0)
            assert flags[use.moves] == natural.is_updating
            moved.append(natural.is_updating)
            natural._minibatches += 1
        assert flags[union] == any(moved)
        assert schedule.starts == {use.begins for use in uses}


def test_what_depends_on_nothing_always_runs() -> None:
    """Without decisions there is nothing to decide, and the union of one set is that set."""
    schedule = Schedule(Clock())
    assert schedule.any_of([]) == ALWAYS
    assert schedule.any_of([7]) == 7
    assert schedule.next().tolist() == []
    assert schedule.next().dtype == np.bool_
