"""Rows of equal elements have equal hashes, however the elements were written."""

from collections import Counter

import attrs
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from nnet3_optimizer.equivalence.contents import Content, Rectangle
from nnet3_optimizer.equivalence.hashes import seed_of, unknowns

ROWS, COLS, SOURCES = 3, 5, 2

Elements = list[list[Counter[tuple[int, int, int]]]]
"""For each row and column, the number of times that each element (source, row, column) is added."""


Span = tuple[int, int, int]
"""A number of rows, or columns, the first of them in the source, and the first in the matrix."""


@attrs.frozen
class Copy:
    """Some rows and columns of a source, set or added to some of a matrix."""

    source: int
    rows: Span
    cols: Span
    adds: bool


@st.composite
def spans(draw: st.DrawFn, size: int) -> Span:
    """Some of so many rows or columns, and where they are copied to."""
    count = draw(st.integers(1, size))
    first = st.integers(0, size - count)
    return count, draw(first), draw(first)


COPIES = st.lists(
    st.builds(Copy, st.integers(0, SOURCES - 1), spans(ROWS), spans(COLS), st.booleans()),
    min_size=1,
    max_size=6,
)
"""Copies within a matrix."""


def elements(steps: list[Copy]) -> Elements:
    """The contents of the matrix, element by element."""
    matrix: Elements = [[Counter() for _ in range(COLS)] for _ in range(ROWS)]
    for step in steps:
        (rows, from_row, to_row), (cols, from_col, to_col) = step.rows, step.cols
        for row, col in np.ndindex(rows, cols):
            element = step.source, from_row + row, from_col + col
            before = matrix[to_row + row][to_col + col] if step.adds else Counter()
            matrix[to_row + row][to_col + col] = before + Counter([element])
    return matrix


def contents() -> list[Content]:
    """The sources: the same unknown rows each time."""
    return [
        Content([0, COLS], [unknowns(seed_of("source", number), ROWS)]) for number in range(SOURCES)
    ]


def written(steps: list[Copy]) -> Rectangle:
    """The matrix after these copies."""
    sources = contents()
    matrix = Content([0, COLS], [np.zeros(ROWS, np.uint64)])
    for step in steps:
        (rows, from_row, to_row), (cols, from_col, to_col) = step.rows, step.cols
        part = sources[step.source].read(from_row, rows, from_col, cols)
        matrix.write(to_row, to_col, cols, part, adds=step.adds)
    return matrix


@given(COPIES, COPIES)
def test_hashes_are_equal_for_equal_rows_only(one: list[Copy], other: list[Copy]) -> None:
    """Two rows have the same hash exactly if they have the same elements."""
    is_equal = [a == b for a, b in zip(elements(one), elements(other), strict=True)]

    assert (written(one).rows() == written(other).rows()).tolist() == is_equal


@given(COPIES)
def test_parts_of_rows_are_those_of_the_whole(steps: list[Copy]) -> None:
    """What is read has the hash of its elements, from whichever column on, however written."""
    matrix = written(steps)
    by_column = written(
        [
            Copy(step.source, step.rows, (1, step.cols[1] + col, step.cols[2] + col), step.adds)
            for step in steps
            for col in range(step.cols[0])
        ]
    )
    for begin in range(COLS):
        part = matrix.read(0, ROWS, begin, COLS - begin)
        assert (part.rows() == by_column.read(0, ROWS, begin, COLS - begin).rows()).all()
        alone = Content([0, COLS - begin], [np.zeros(ROWS, np.uint64)])
        alone.write(0, 0, COLS - begin, part, adds=True)
        assert (part.rows() == alone.rows()).all()
        for column in range(COLS - begin):
            here = part.at(0, column) == matrix.at(0, begin + column)
            assert here or begin + column not in matrix.splits
