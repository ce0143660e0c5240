"""Handing over matrices has the effect of moving all at once, wherever they lie."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from nnet3_computation import commands
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.lowering.moves import Memory, record_moves

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
