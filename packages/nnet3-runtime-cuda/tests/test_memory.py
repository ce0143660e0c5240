"""Working memory of commands, on the processor and on a device; and whether all of it fits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from computations import request, single
from hypothesis import example, given
from hypothesis import strategies as st
from nnet3_compiler import CompilerOptions, compile_computation
from nnet3_computation import NnetComputation, plan_memory
from nnet3_optimizer import optimize
from nnet3_runtime_cuda.cuda.memory import (
    RING,
    SMALL,
    DeviceScratch,
    check_fits,
    minibatch_size,
)
from nnet3_runtime_cuda.cuda.platform import Properties
from nnet3_runtime_cuda.cuda.recorded import View
from nnet3_runtime_cuda.errors import DeviceMemoryError
from nnet3_runtime_cuda.operations.scratch import Scratch


@given(st.lists(st.lists(st.integers(0, 5000), max_size=6), max_size=6))
def test_scratch(commands: list[list[int]]) -> None:
    """Arrays of one command do not overlap; the memory of earlier commands is used again."""
    scratch = Scratch()
    for sizes in commands:
        scratch.begin()
        arrays = [scratch.take((size,), np.float32) for size in sizes]
        for number, array in enumerate(arrays):
            array.fill(number)
        for number, array in enumerate(arrays):
            assert (array == number).all()
    nbytes = scratch.nbytes
    for sizes in commands:
        scratch.begin()
        for size in sizes:
            scratch.take((size,), np.float32)

    assert scratch.nbytes == nbytes


def test_memory_of_growing_commands() -> None:
    """If each command takes a little more than all before, little is used beside the last one."""
    scratch = Scratch()
    for size in range(1 << 16, 1 << 23, 1 << 16):
        scratch.begin()
        scratch.take((size,), np.uint8)

    assert scratch.nbytes < 1.7 * (1 << 23)


def test_lent_memory() -> None:
    """A command uses lent memory first; the next command no longer has it."""
    scratch, lent = Scratch(), np.zeros(300, np.float32)
    scratch.begin()
    scratch.lend(lent)
    first, second, third = (scratch.take((size,), np.float32) for size in (100, 150, 100))

    assert np.shares_memory(first, lent)
    assert np.shares_memory(second, lent)
    assert not np.shares_memory(first, second)
    assert not np.shares_memory(third, lent)
    assert scratch.nbytes == third.nbytes
    scratch.begin()
    assert np.shares_memory(scratch.take((100,), np.float32), third)


@pytest.mark.parametrize("columns", [100, SMALL])
def test_lent_memory_on_a_device(columns: int) -> None:
    """The same on a device; arrays that do not fit into lent memory get their own."""
    scratch, lent = DeviceScratch(), np.zeros(3 * SMALL, np.float32)
    scratch.begin()
    ring = scratch.take((SMALL // 4,), np.float32)
    scratch.begin()
    scratch.lend(lent)
    first, second, third = (scratch.take((size,), np.float32) for size in (2 * SMALL, SMALL, SMALL))
    scratch.begin()
    fourth = scratch.take((columns,), np.float32)

    assert np.shares_memory(first, lent)
    assert np.shares_memory(second, lent)
    assert not np.shares_memory(first, second)
    for array in (third, fourth):
        assert not np.shares_memory(array, lent)
        assert not np.shares_memory(array, ring)
        assert scratch.contains(View.of(array))
    assert scratch.nbytes == RING + third.nbytes


@given(
    commands=st.lists(
        st.lists(st.sampled_from([0, 1, 63, 64, SMALL - 64, SMALL, SMALL + 1]), max_size=6),
        max_size=80,
    )
)
@example(commands=[[SMALL]] * (RING // SMALL) + [[SMALL, SMALL + 1]])
def test_arrays_of_a_command_on_a_device_lie_apart(commands: list[list[int]]) -> None:
    """No two working arrays of a command share memory, also when they have filled the ring."""
    scratch = DeviceScratch()
    for sizes in commands:
        scratch.begin()
        arrays = [scratch.take((size,), np.uint8) for size in sizes]
        places = sorted((a.__array_interface__["data"][0], a.nbytes) for a in arrays if a.nbytes)
        for (start, nbytes), (following, _) in itertools.pairwise(places):
            assert start + nbytes <= following
        assert all(scratch.contains(View.of(array)) for array in arrays if array.nbytes)


def computation(sequences: int, *, debug_info: bool = True) -> NnetComputation:
    """A training computation for `sequences` sequences."""
    nnet = single("type=AffineComponent input-dim=40 output-dim=30", dim=40)
    options = CompilerOptions(output_debug_info=debug_info)
    wanted = request(range(20), range(20), sequences=sequences)
    return optimize(nnet, compile_computation(nnet, wanted, options=options))


def device(free_bytes: int) -> Properties:
    """A device with this much free memory."""
    return Properties(name="Stand-in", total_bytes=1 << 40, free_bytes=free_bytes)


@pytest.mark.parametrize("sequences", [1, 7, 64])
def test_minibatch_size_is_found(sequences: int) -> None:
    """The minibatch is the number of sequences in the request; unknown without debug info."""
    assert minibatch_size(computation(sequences)) == sequences
    assert minibatch_size(computation(sequences, debug_info=False)) is None


def test_minibatch_that_is_named_fits() -> None:
    """The minibatch in the message fits into the free memory; the next larger one does not."""
    large = computation(64)
    needed = plan_memory(large).arena_bytes
    free = needed * 3 // 8
    with pytest.raises(
        DeviceMemoryError,
        match=rf"{needed:,} bytes of memory on Stand-in, of which {free:,} bytes are free; "
        "a minibatch of 24 instead of 64 would fit",
    ):
        check_fits(needed, device(free), large)
    assert (
        plan_memory(computation(24)).arena_bytes <= free < plan_memory(computation(25)).arena_bytes
    )
