"""The natural gradient for devices, computed on the processor, and when its estimates change."""

from __future__ import annotations

import numpy as np
import pytest
from computations import needs_compiler
from emulated_device import DryRun, HostPlatform
from hypothesis import given
from hypothesis import strategies as st
from natural_gradient_by_definition import record_affine
from nnet3_runtime_cuda.cpu.natural_gradient import OnlineNaturalGradient
from nnet3_runtime_cuda.cuda.machine import DeviceMachine
from nnet3_runtime_cuda.cuda.natural_gradient import DeviceTape
from nnet3_runtime_cuda.cuda.segments import ALWAYS, Clock, Schedule
from nnet3_runtime_cuda.errors import DeviceError
from nnet3_runtime_cuda.operations.gradients import (
    FisherEstimate,
    NaturalGradientOptions,
)


def rows(count: int, dim: int, seed: int) -> np.ndarray:
    """Correlated rows."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(count, dim)) @ rng.normal(size=(dim, dim))
    return mixed.astype(np.float32)


def blocks(count: int) -> list[np.ndarray]:
    """The two blocks of a splice of 12 columns."""
    return [np.ascontiguousarray(part) for part in np.split(rows(count, 12, 0), [5], axis=1)]


@needs_compiler
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("count", [50, 20, 5])
@pytest.mark.parametrize("has_bias", [True, False])
def test_affine_equals_explicit_product(has_bias: bool, count: int, first: bool) -> None:
    """The parameters change by the product of the preconditioned rows.

    With many rows, the gradient is preconditioned; with few, the rows are.
    """
    machine = DeviceMachine(HostPlatform(strict=True))
    tape, dy = machine.tape(), rows(count, 7, 1)
    parameters, compare = record_affine(tape, blocks(count), dy, has_bias=has_bias, first=first)

    tape.run()

    machine.pull(parameters)
    compare()


@needs_compiler
def test_reads_of_new_memory_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate that begins must fill its matrices with zeros, for a kernel reads them."""
    fill = DeviceTape.fill
    monkeypatch.setattr(DeviceTape, "fill", lambda *args: args[1] and fill(*args))
    tape = DeviceMachine(HostPlatform(strict=True)).tape()
    record_affine(tape, blocks(50), rows(50, 7, 1), has_bias=False, first=True)
    with pytest.raises(DeviceError, match=r"nothing has written.*element \d+ of argument .*float"):
        tape.run()


def test_sides_share_launches() -> None:
    """Equal operations for the blocks of input and output derivative share a kernel."""
    platform = DryRun()
    tape = DeviceMachine(platform).tape()
    record_affine(tape, blocks(50), rows(50, 7, 1), has_bias=True, first=True)

    tape.run()

    (source,) = platform.sources
    # Three kernels sum the squares of blocks; four test whether exact norms are needed.
    assert source.count("square += value * value;") == 3
    assert source.count("if (is_small[0] == 0) return;") == 4
    squares, differences = (
        [kernel for kernel in source.split('extern "C"') if text in kernel]
        for text in ("square += value * value;", "if (is_small[0] == 0) return;")
    )
    assert (len(squares), len(differences)) == (1, 1)


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
        union = schedule.any_of([moves for _, moves in uses])
        bound.append((schedule, estimates, uses, union))
    slow = [
        OnlineNaturalGradient(FisherEstimate(NaturalGradientOptions(update_period=n)))
        for n in PERIODS
    ]
    for run in runs:
        schedule, estimates, uses, union = bound[run % len(bound)]
        flags = schedule.next()
        moved = []
        for estimate, (begins, moves) in zip(estimates, uses, strict=True):
            natural = slow[estimate]
            assert flags[begins] == (natural._minibatches == 0)
            assert flags[moves] == natural.is_updating
            moved.append(natural.is_updating)
            natural._minibatches += 1
        assert flags[union] == any(moved)
        assert schedule.starts == {begins for begins, _ in uses}


def test_what_depends_on_nothing_always_runs() -> None:
    """Without decisions there is nothing to decide, and the union of one set is that set."""
    schedule = Schedule(Clock())
    assert schedule.any_of([]) == ALWAYS
    assert schedule.any_of([7]) == 7
    assert schedule.next().tolist() == []
    assert schedule.next().dtype == np.bool_
