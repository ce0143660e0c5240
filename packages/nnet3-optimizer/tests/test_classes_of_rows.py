"""Classes of rows stand for what the rows are: coefficients times labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_compiler.debug_info import MatrixDebugInfo
from nnet3_optimizer.equivalence.classes import ClassRows, compact, joint
from nnet3_optimizer.equivalence.field import PRIME
from nnet3_optimizer.equivalence.labels import KnownLabels, Labels, time_shift
from nnet3_optimizer.equivalence.moves import Moves, Windows, steps_between
from nnet3_optimizer.equivalence.pattern import IrregularError

CLASSES = st.lists(st.integers(0, 3), min_size=5, max_size=5)


def labels(rows: list[tuple[int, int]]) -> Labels:
    """The labels of rows, given by sequence and time."""
    cindexes = np.array([(0, n, t, 0) for n, t in rows], dtype=np.int32)
    return KnownLabels().of_info(MatrixDebugInfo(pattern=cindexes))


def rows_of(found: ClassRows, of: Labels) -> list[int]:
    """What the rows of one stretch are."""
    return found.expanded(of.elements).columns[0]


@given(st.lists(st.one_of(st.none(), CLASSES), min_size=1, max_size=4))
def test_joint_classes(parts: list[list[int] | None]) -> None:
    """Rows are in one joint class exactly if they are in one class in each respect."""
    arrays = [None if each is None else np.array(each) for each in parts]

    picks, classes = joint((each, 1 if each is None else 4) for each in arrays)

    of_row = [0] * 5 if classes is None else classes.tolist()
    given_of_row = [tuple(0 if each is None else each[row] for each in parts) for row in range(5)]
    assert [tuple(pick[of_row[row]] for pick in picks) for row in range(5)] == given_of_row
    assert len(picks[0]) == len(set(given_of_row))


@pytest.mark.parametrize("bound", [8, 1 << 40])
def test_codes_are_numbered(bound: int) -> None:
    """Codes are counted where there can be few, else sorted: with the same result."""
    used, places = compact(np.array([5, 2, 5, 7]), bound)

    assert used == [2, 5, 7]
    assert places is not None
    assert places.tolist() == [1, 0, 1, 2]
    assert compact(np.array([5, 5]), bound) == ([5], None)


SOURCE = labels([(n, t) for t in range(-2, 3) for n in range(2)])


@given(
    st.lists(st.integers(0, 2), min_size=10, max_size=10),
    st.lists(st.tuples(st.booleans(), st.integers(-2, 2), st.integers(0, 1)), min_size=1),
)
def test_rows_that_come_from_other_times(
    classes: list[int], rows: list[tuple[bool, int, int]]
) -> None:
    """Taken rows are the very rows: coefficients account for the difference in time."""
    source = ClassRows([0], [[3, 5, 7]], classes=np.array(classes))
    of = [2 * (t + 2) + n if is_there else -1 for is_there, t, n in rows]
    target = labels([(max(row, 0) % 2, 10 * place) for place, row in enumerate(of)])
    moves = Moves.of(np.array(of), SOURCE, target)

    taken = source.taken(moves)

    before = [*rows_of(source, SOURCE), 0]
    if moves.time is None:
        assert rows_of(taken, target) == [before[row] for row in of]
    else:
        assert taken.absolute == [True]
        with pytest.raises(IrregularError):
            taken.expanded(target.elements)


def test_rows_of_another_sequence() -> None:
    """Rows stay in their sequence."""
    with pytest.raises(IrregularError):
        Moves.of(np.array([1]), SOURCE, labels([(0, 0)]))
    with pytest.raises(IrregularError):
        steps_between(labels([(0, 0)]), labels([(1, 0)]))
    with pytest.raises(IrregularError):
        Moves.of(np.array([10]), SOURCE, labels([(0, 0)]))


@given(st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_sums_of_windows(classes: list[int]) -> None:
    """The sum of the rows in a window is their sum."""
    source, target = labels([(0, t) for t in range(6)]), labels([(0, 1), (0, 3), (0, 7)])
    rows = ClassRows([0], [[3, 5, 7]], classes=np.array(classes))
    begin, end = np.array([0, 2, -1]), np.array([2, 6, -1])

    sums = rows.range_sums(Windows(begin, end, source, target))

    each = rows_of(rows, source)
    expected = [sum(each[0:2]) % PRIME, sum(each[2:6]) % PRIME, 0]
    assert rows_of(sums, target) == expected


@given(st.lists(st.integers(0, 2), min_size=10, max_size=10))
def test_totals_are_sums_of_labels(classes: list[int]) -> None:
    """The labels of each class are added up, by whole sequences or row by row."""
    totals = [0, 0, 0]
    for each, element in zip(classes, SOURCE.elements, strict=True):
        totals[each] = (totals[each] + element) % PRIME

    assert SOURCE.totals(np.array(classes), 3) == totals
    assert SOURCE.total == sum(SOURCE.elements) % PRIME


def test_labels_of_rows() -> None:
    """A step in time is one factor; rows with the same cindexes have labels of their own."""
    here, later = SOURCE.elements[0], SOURCE.elements[2]
    twice = labels([(0, 0), (0, 0), (1, 0)]).elements

    assert later == here * time_shift(1) % PRIME
    assert len(set(twice)) == 3
