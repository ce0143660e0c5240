"""A run allocates only its outputs; its memory is known before, and matrices are handed over."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from computations import request, single
from hypothesis import given
from hypothesis import strategies as st
from nnet3_compiler import CompilerOptions, compile_computation
from nnet3_computation import (
    NnetComputation,
    commands,
    plan_memory,
)
from nnet3_optimizer import optimize
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cuda.memory import check_fits, minibatch_size
from nnet3_runtime_cuda.cuda.platform import Properties
from nnet3_runtime_cuda.errors import DeviceMemoryError
from nnet3_runtime_cuda.lowering.arena import Memory, record_moves

SIZE = 12
WIDTH = 3


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=6))
def test_origins_are_those_of_one_swap_after_another(pairs: list[tuple[int, int]]) -> None:
    """Each matrix that is defined at the end came from the matrix that is named."""
    contents: dict[int, int | None] = {number: number for number in range(1, 7)}
    program = []
    for destination, source in pairs:
        if destination != source and contents[source] is not None:
            program.append(commands.SwapMatrix(destination=destination, source=source))
            contents[destination], contents[source] = contents[source], None

    found = commands.origins(program)

    touched = {swap.destination for swap in program} | {swap.source for swap in program}
    assert found == {m: contents[m] for m in touched if contents[m] is not None}


@st.composite
def moves(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Places (source, destination) of moves; no two destinations and no two sources overlap."""
    count = draw(st.integers(1, 3))
    begins = st.lists(st.integers(0, SIZE - WIDTH), min_size=count, max_size=count).filter(
        lambda found: all(b - a >= WIDTH for a, b in itertools.pairwise(sorted(found)))
    )
    return list(zip(draw(begins), draw(begins), strict=True))


@given(moves())
def test_moves_happen_at_once(places: list[tuple[int, int]]) -> None:
    """Destinations get the contents of the sources before any move."""
    memory = np.arange(float(SIZE))
    before = memory.copy()
    tape = NumpyTape(np.float64)

    def place(begin: int) -> Memory:
        return begin, memory[begin : begin + WIDTH].reshape(1, WIDTH)

    record_moves(tape, [(place(source), place(destination)) for source, destination in places])
    for call in tape.calls:
        call()

    for source, destination in places:
        np.testing.assert_array_equal(
            memory[destination : destination + WIDTH], before[source : source + WIDTH]
        )


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
