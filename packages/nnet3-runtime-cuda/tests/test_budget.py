"""The memory of a computation is known before it runs, and errors say what would fit."""

from __future__ import annotations

import pytest
from computations import request, single
from nnet3_compiler import CompilerOptions, compile_computation
from nnet3_computation import NnetComputation, plan_memory
from nnet3_optimizer import optimize
from nnet3_runtime_cuda.cuda.memory import check_fits, minibatch_size
from nnet3_runtime_cuda.cuda.platform import Properties
from nnet3_runtime_cuda.errors import DeviceMemoryError


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


def test_what_fits_passes() -> None:
    """A computation may use all of the free memory."""
    check_fits(1000, device(1000), computation(2))


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
