"""The natural gradient for devices, computed on the processor, and when its estimates change."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import DryRun, HostPlatform, compiler
from hypothesis import given
from hypothesis import strategies as st
from natural_gradient_by_definition import affine_update
from nnet3_runtime_cuda.cpu.natural_gradient import OnlineNaturalGradient
from nnet3_runtime_cuda.cuda.machine import DeviceMachine
from nnet3_runtime_cuda.cuda.natural_gradient import DeviceTape
from nnet3_runtime_cuda.cuda.segments import ALWAYS, Clock, Schedule
from nnet3_runtime_cuda.errors import DeviceError
from nnet3_runtime_cuda.operations.gradients import (
    AffineGradient,
    AffinePreconditioner,
    FisherEstimate,
    NaturalGradientOptions,
)
from nnet3_runtime_cuda.operations.natural_gradient import record_natural_gradient

RANKS = 4, 3

needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


def rows(count: int, dim: int, seed: int) -> np.ndarray:
    """Correlated rows."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(count, dim)) @ rng.normal(size=(dim, dim))
    return mixed.astype(np.float32)


def record(tape: object, x: np.ndarray, dy: np.ndarray, out: tuple, *, first: bool) -> None:
    """Records the natural gradient of an affine map with a splice of two blocks."""
    options = [NaturalGradientOptions(rank=rank) for rank in RANKS]
    blocks = [np.ascontiguousarray(part) for part in (x[:, :5], x[:, 5:])]
    linear, bias = out
    gradient = AffineGradient(xs=blocks, dy=dy, linear=linear, bias=bias, first=first)
    record_natural_gradient(tape, AffinePreconditioner(*map(FisherEstimate, options)), gradient)


@needs_compiler
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("count", [50, 20, 5])
@pytest.mark.parametrize("has_bias", [True, False])
def test_affine_equals_explicit_product(has_bias: bool, count: int, first: bool) -> None:
    """The parameters change by the product of the preconditioned rows.

    With many rows, the gradient is preconditioned; with few, the rows are.
    """
    x, dy = rows(count, 12, 0), rows(count, 7, 1)
    linear, bias = np.ones((7, 12), np.float32), np.ones(7, np.float32)
    machine = DeviceMachine(HostPlatform(strict=True))
    tape = machine.tape()
    record(tape, x, dy, (linear, bias if has_bias else None), first=first)
    expected = affine_update(x, dy, RANKS, has_bias=has_bias, first=first)

    tape.run()

    machine.pull([linear, bias])
    actual = np.hstack([linear, bias[:, None]]) if has_bias else linear
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@needs_compiler
def test_reads_of_new_memory_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate that begins must fill its matrices with zeros, for a kernel reads them."""
    fill = DeviceTape.fill
    monkeypatch.setattr(DeviceTape, "fill", lambda *args: args[1] and fill(*args))
    tape = DeviceMachine(HostPlatform(strict=True)).tape()
    out = np.ones((7, 12), np.float32), None
    record(tape, rows(50, 12, 0), rows(50, 7, 1), out, first=True)
    with pytest.raises(DeviceError, match=r"nothing has written.*element \d+ of argument .*float"):
        tape.run()


def test_sides_share_launches() -> None:
    """Equal operations for the blocks of input and output derivative share a kernel."""
    platform = DryRun()
    machine = DeviceMachine(platform)
    tape = machine.tape()
    out = np.ones((7, 12), np.float32), np.ones(7, np.float32)
    record(tape, rows(50, 12, 0), rows(50, 7, 1), out, first=True)

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
