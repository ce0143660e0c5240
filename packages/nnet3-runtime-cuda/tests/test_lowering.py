"""Steps on the way to a program: blocks of row lists, moves, postponed zeros, no collections."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_computation import commands
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.lowering.areas import Area, PendingZeros
from nnet3_runtime_cuda.lowering.arena import Memory, RegularBlocks, record_moves, regular_blocks
from nnet3_runtime_cuda.lowering.lower import uncollected

# ---- row lists ----


def grid(count: int, length: int, first: int, outer: int, inner: int) -> np.ndarray:
    """`count` runs of `length` numbers: the first, the step from run to run, and within a run."""
    return (first + outer * np.arange(count)[:, None] + inner * np.arange(length)).ravel()


def covered(blocks: RegularBlocks, lists: np.ndarray) -> np.ndarray:
    """The lists that the blocks stand for, of the shape of `lists`."""
    result = np.full_like(lists, -1)
    for b, (start, count, length) in enumerate(
        zip(blocks.start, blocks.runs, blocks.length, strict=True)
    ):
        at = slice(start, start + count * length)
        steps = zip(blocks.first[:, b], blocks.outer[:, b], blocks.inner[:, b], strict=True)
        result[:, at] = [grid(count, length, *each) for each in steps]
    return result


@st.composite
def row_lists(draw: st.DrawFn) -> np.ndarray:
    """Two lists of rows with some regularity and some breaks."""
    parts = []
    for _ in range(draw(st.integers(1, 5))):
        sizes = draw(st.integers(1, 4)), draw(st.integers(1, 5))
        steps = st.tuples(*[st.integers(0, 30)] * 3)
        parts.append([grid(*sizes, *draw(steps)) for _ in range(2)])
    return np.concatenate(parts, axis=1).astype(np.int64)


def progression(columns: list[np.ndarray]) -> int:
    """The number of columns, from the first on, that change by equal steps."""
    size = min(2, len(columns))
    while size < len(columns) and np.array_equal(
        columns[size] - columns[size - 1], columns[1] - columns[0]
    ):
        size += 1
    return size


def step(run: np.ndarray) -> list[int]:
    """The change of each list from one row of a run to the next."""
    return (run[1] - run[0]).tolist() if len(run) > 1 else [0] * run.shape[1]


def greedy_blocks(lists: np.ndarray) -> list[tuple[int, int, int]]:
    """Start, count and length of each block, by the definition.

    The blocks are the longest runs from the left, and as many of these as are equally spaced.
    """
    runs: list[np.ndarray] = []
    rest = list(lists.T)
    while rest:
        length = progression(rest)
        runs.append(np.array(rest[:length]))
        rest = rest[length:]
    blocks, start = [], 0
    while runs:
        length = len(runs[0])
        _, alike = next(itertools.groupby(runs, key=lambda run: (len(run), step(run))))
        count = progression([run[0] for run in alike])
        blocks.append((start, count, length))
        start += count * length
        runs = runs[count:]
    return blocks


@given(row_lists())
@settings(max_examples=2 * settings.default.max_examples)
def test_blocks_are_those_of_the_definition(lists: np.ndarray) -> None:
    """The search in linear time finds the longest runs and the longest blocks of them.

    Together they are the lists, element by element and in order.
    """
    blocks = regular_blocks(lists)

    np.testing.assert_array_equal(covered(blocks, lists), lists)
    found = np.stack([blocks.start, blocks.runs, blocks.length], axis=1)
    assert list(map(tuple, found.tolist())) == greedy_blocks(lists)


# ---- matrices that are handed over ----


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


SIZE, WIDTH = 12, 3
apart = st.builds(
    lambda free, order: [sorted(free)[k] + WIDTH * k for k in order],
    st.lists(st.integers(0, SIZE - 3 * WIDTH), min_size=3, max_size=3),
    st.permutations(range(3)),
)
"""The beginnings of three places that do not overlap."""


@given(apart, apart, st.integers(1, 3))
def test_moves_happen_at_once(sources: list[int], destinations: list[int], count: int) -> None:
    """Destinations get the contents of the sources before any move."""
    memory = np.arange(float(SIZE))
    before = memory.copy()
    tape = NumpyTape(np.float64)
    pairs = [*zip(sources, destinations, strict=True)][:count]

    def place(begin: int) -> Memory:
        return begin, memory[begin : begin + WIDTH].reshape(1, WIDTH)

    record_moves(tape, [(place(source), place(destination)) for source, destination in pairs])
    for call in tape.calls:
        call()

    for source, destination in pairs:
        moved = memory[destination : destination + WIDTH]
        np.testing.assert_array_equal(moved, before[source : source + WIDTH])


# ---- zeros ----

SIDE = 5
ends = st.sampled_from([*itertools.combinations(range(SIDE + 1), 2)])
areas = st.builds(lambda rows, columns: Area(1, *rows, *columns), ends, ends)
steps = st.lists(st.tuples(st.sampled_from(["zero", "add", "read"]), areas), max_size=12)


@given(steps)
@settings(max_examples=3 * settings.default.max_examples)
def test_values_are_those_of_immediate_zeroing(program: list[tuple[str, Area]]) -> None:
    """Postponed zeroing gives every reader the same values as immediate zeroing."""
    zeros, late, at_once = PendingZeros(), np.full((SIDE, SIDE), 9.0), np.full((SIDE, SIDE), 9.0)

    def part(matrix: np.ndarray, area: Area) -> np.ndarray:
        return matrix[area.row : area.row_end, area.column : area.column_end]

    for number, (action, area) in enumerate([*program, ("read", Area(1, 0, SIDE, 0, SIDE))], 1):
        if action == "zero":
            part(at_once, area)[...] = 0.0
            for pending in zeros.touching(area):
                if not area.contains(pending):
                    part(late, pending)[...] = 0.0
            zeros.note(area)
            continue
        if action == "add":
            part(at_once, area)[...] += number
            if zeros.take(area):
                part(late, area)[...] = number
                continue
        for pending in zeros.touching(area):
            part(late, pending)[...] = 0.0
        if action == "add":
            part(late, area)[...] += number
        else:
            np.testing.assert_array_equal(part(late, area), part(at_once, area))


def test_parts_of_a_zeroed_matrix_can_be_taken_one_by_one() -> None:
    """Each block that is added is set instead; zeros of one matrix are not those of another."""
    zeros = PendingZeros()
    zeros.note(Area(1, 0, 4, 0, 6))

    assert not zeros.take(Area(2, 0, 4, 0, 6))
    assert [zeros.take(Area(1, 0, 4, 2 * k, 2 * k + 2)) for k in (0, 1, 2, 0)] == [True] * 3 + [
        False
    ]
    zeros.note(Area(1, 0, 4, 0, 6))
    zeros.forget(1)
    assert not zeros.take(Area(1, 0, 4, 0, 6))


# ---- garbage collection ----


@pytest.fixture
def _as_it_was() -> Iterator[None]:
    """Restores garbage collection."""
    yield
    gc.enable()


@pytest.mark.usefixtures("_as_it_was")
def test_collections_pause() -> None:
    """Overlapping pauses of several threads end when the last one ends, or with an error."""
    first, second = uncollected(), uncollected()
    with first:
        assert not gc.isenabled()
        second.__enter__()
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()

    with pytest.raises(MemoryError), uncollected():
        raise MemoryError
    assert gc.isenabled()


@pytest.mark.usefixtures("_as_it_was")
def test_collections_that_were_off_stay_off() -> None:
    """Garbage collection that the user has switched off stays off."""
    gc.disable()
    with uncollected():
        assert not gc.isenabled()

    assert not gc.isenabled()
