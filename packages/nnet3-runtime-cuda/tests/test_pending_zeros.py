"""Tests of zeroing that is postponed."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_runtime_cuda.lowering.areas import Area, PendingZeros

SIZE = 5


@st.composite
def areas(draw: st.DrawFn) -> Area:
    """An area of a square matrix."""
    row, column = draw(st.integers(0, SIZE - 1)), draw(st.integers(0, SIZE - 1))
    row_end, column_end = draw(st.integers(row + 1, SIZE)), draw(st.integers(column + 1, SIZE))
    return Area(1, row, row_end, column, column_end)


def cells(area: Area) -> tuple[slice, slice]:
    """The index of an area in a NumPy array."""
    return slice(area.row, area.row_end), slice(area.column, area.column_end)


steps = st.lists(st.tuples(st.sampled_from(["zero", "add", "read"]), areas()), max_size=12)


@given(steps)
@settings(max_examples=3 * settings.default.max_examples)
def test_values_are_those_of_immediate_zeroing(program: list[tuple[str, Area]]) -> None:
    """Postponed zeroing gives every reader the same values as immediate zeroing."""
    zeros, late, at_once = PendingZeros(), np.full((SIZE, SIZE), 9.0), np.full((SIZE, SIZE), 9.0)
    for number, (action, area) in enumerate([*program, ("read", Area(1, 0, SIZE, 0, SIZE))], 1):
        if action == "zero":
            at_once[cells(area)] = 0.0
            for pending in zeros.touching(area):
                if not area.contains(pending):
                    late[cells(pending)] = 0.0
            zeros.note(area)
            continue
        if action == "add":
            at_once[cells(area)] += number
            if zeros.take(area):
                late[cells(area)] = number
                continue
        for pending in zeros.touching(area):
            late[cells(pending)] = 0.0
        if action == "add":
            late[cells(area)] += number
        else:
            np.testing.assert_array_equal(late[cells(area)], at_once[cells(area)])


def test_parts_of_a_zeroed_matrix_can_be_taken_one_by_one() -> None:
    """Adding the blocks of an Append to a zeroed matrix becomes setting each block."""
    zeros = PendingZeros()
    zeros.note(Area(1, 0, 4, 0, 6))

    assert [zeros.take(Area(1, 0, 4, 2 * k, 2 * k + 2)) for k in range(3)] == [True, True, True]
    assert not zeros.take(Area(1, 0, 4, 0, 2))


def test_matrices_are_apart() -> None:
    """Pending zeros of one matrix do not affect another."""
    zeros = PendingZeros()
    zeros.note(Area(1, 0, 4, 0, 6))

    assert not zeros.take(Area(2, 0, 4, 0, 6))
    zeros.forget(1)
    assert not zeros.take(Area(1, 0, 4, 0, 6))
