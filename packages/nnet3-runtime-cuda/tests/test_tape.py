"""Operations that the tape records in another form than NumPy offers."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nnet3_runtime_cuda.cpu.tape import FEWEST_COLUMNS, MOST_COUNTED, NumpyTape
from nnet3_runtime_cuda.cuda.memory import RING, SMALL, DeviceScratch
from nnet3_runtime_cuda.cuda.recorded import View
from nnet3_runtime_cuda.operations.scratch import Scratch

VALUES = np.array([-np.inf, -1.0, -0.0, 0.0, 1e-30, 0.5, 1.0, 3.0, np.inf, np.nan], np.float32)


@given(
    st.integers(1, 5),
    st.sampled_from([1, FEWEST_COLUMNS - 1, FEWEST_COLUMNS, 3 * FEWEST_COLUMNS]),
    st.sampled_from([-1.0, 0.0, 0.3]),
    st.booleans(),
)
def test_limits(rows: int, columns: int, limit: float, is_part: bool) -> None:
    """Maximum and minimum with a number are NumPy's, also for parts of rows."""
    values = np.random.default_rng(rows).choice(VALUES, (rows, columns + 8))
    a = values[:, :columns] if is_part else values[:, :columns].copy()
    tape, above, below = NumpyTape(), np.empty_like(a), np.empty_like(a)
    tape.maximum(a, limit, above)
    tape.minimum(a, limit, below)
    tape.run()

    np.testing.assert_array_equal(above, np.maximum(a, np.float32(limit)))
    np.testing.assert_array_equal(below, np.minimum(a, np.float32(limit)))


@pytest.mark.parametrize("columns", [7, 100])
def test_is_positive(columns: int) -> None:
    """Positive values give 1, also the smallest and the largest."""
    values = VALUES[(VALUES >= 0.0)]
    a = np.random.default_rng(0).choice(values, (4, columns))
    tape, out = NumpyTape(), np.empty_like(a)
    tape.is_positive(a, out)
    tape.run()

    np.testing.assert_array_equal(out, (a > 0.0).astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 2, 4, 8, 16])
def test_negative(columns: int, dtype: type) -> None:
    """One column of a matrix is negated in place, for any distance between its elements."""
    values = np.arange(1.0, 11.0 * columns + 1.0, dtype=dtype).reshape(-1, columns)
    expected = [-values[row, -1].item() for row in range(len(values))]
    tape = NumpyTape(dtype=dtype)
    tape.negative(values[:, -1:], values[:, -1:])
    tape.run()

    assert values[:, -1].tolist() == expected


@pytest.mark.parametrize("rows", [1, MOST_COUNTED, 2 * MOST_COUNTED + 1])
def test_count_positive(rows: int) -> None:
    """Positive values are counted, even if there are more than a byte can count."""
    a = np.random.default_rng(rows).choice(VALUES, (rows, 5))
    a[:, 0] = 1.0
    tape, out = NumpyTape(), np.full((1, 5), np.nan, np.float32)
    tape.count_positive(a, out)
    tape.run()

    np.testing.assert_array_equal(out, (a > 0.0).sum(axis=0, keepdims=True))


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
