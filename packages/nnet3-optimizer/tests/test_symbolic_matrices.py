"""Symbolic matrices of equal elements are equal, however the elements were written."""

from collections import Counter

import attrs
import pytest
from brief_computations import NNET, computation
from hypothesis import given
from hypothesis import strategies as st
from nnet3_optimizer import EquivalenceError, verify_equivalent
from nnet3_optimizer.equivalence.symbols.keys import rows_of
from nnet3_optimizer.equivalence.symbols.matrices import Content, Stretches
from nnet3_optimizer.equivalence.symbols.single_row import Row, columns_of, row_sum, with_columns
from nnet3_optimizer.equivalence.symbols.unknowns import Unknowns

ROWS, COLS, SOURCES = 3, 5, 2

Elements = list[list[Counter[tuple[int, int, int]]]]
"""For each row and column, the number of times that each element (source, row, column) is added."""


@attrs.frozen
class Copy:
    """Some rows and columns of a source, set or added to some of a matrix."""

    source: int
    rows: int
    from_row: int
    to_row: int
    cols: int
    from_col: int
    to_col: int
    adds: bool


@st.composite
def copies(draw: st.DrawFn, rows: int = ROWS) -> list[Copy]:
    """Copies within a matrix of `rows` rows."""
    made = []
    for _ in range(draw(st.integers(1, 6))):
        count, width = draw(st.integers(1, rows)), draw(st.integers(1, COLS))
        made.append(
            Copy(
                source=draw(st.integers(0, SOURCES - 1)),
                rows=count,
                from_row=draw(st.integers(0, rows - count)),
                to_row=draw(st.integers(0, rows - count)),
                cols=width,
                from_col=draw(st.integers(0, COLS - width)),
                to_col=draw(st.integers(0, COLS - width)),
                adds=draw(st.booleans()),
            )
        )
    return made


def elements(steps: list[Copy], rows: int = ROWS) -> Elements:
    """The contents of the matrix, element by element."""
    matrix: Elements = [[Counter() for _ in range(COLS)] for _ in range(rows)]
    for step in steps:
        for row in range(step.rows):
            for col in range(step.cols):
                element = step.source, step.from_row + row, step.from_col + col
                before = matrix[step.to_row + row][step.to_col + col] if step.adds else Counter()
                matrix[step.to_row + row][step.to_col + col] = before + Counter([element])
    return matrix


def contents(unknowns: Unknowns, rows: int = ROWS) -> list[Content]:
    """The sources: the same unknown rows each time."""
    return [
        Content(unknowns, unknowns.block(("source", number, rows), rows), rows, COLS)
        for number in range(SOURCES)
    ]


def symbolic(steps: list[Copy], unknowns: Unknowns, rows: int = ROWS) -> Stretches:
    """The symbolic contents of the matrix."""
    sources = contents(unknowns, rows)
    matrix = Content(unknowns, [0] * rows, rows, COLS)
    for step in steps:
        part = sources[step.source].read(step.from_row, step.rows, step.from_col, step.cols)
        matrix.write(step.to_row, step.to_col, step.cols, part, adds=step.adds)
    return matrix.read(0, rows, 0, COLS)


@given(copies(), copies())
def test_keys_are_equal_for_equal_rows_only(one: list[Copy], other: list[Copy]) -> None:
    """Thorough keys are equal exactly for equal rows; quick keys can also differ for equal rows."""
    unknowns = Unknowns()
    is_equal = [a == b for a, b in zip(elements(one), elements(other), strict=True)]
    first, second = symbolic(one, unknowns), symbolic(other, unknowns)

    found = zip(rows_of(first.keys()), rows_of(second.keys()), strict=True)
    assert [a == b for a, b in found] == is_equal
    assert (first.keys() == second.keys()) == all(is_equal)
    quick = (rows_of(each.keys(thorough=False)) for each in (first, second))
    for a, b, same in zip(*quick, is_equal, strict=True):
        assert same or a != b


@given(copies(rows=1))
def test_single_rows_are_the_same_as_matrices_of_one_row(steps: list[Copy]) -> None:
    """A row has the same key as a value and within a matrix."""
    unknowns = Unknowns()
    row: Row = 0
    for step in steps:
        (source,) = contents(unknowns, 1)[step.source].columns[0]
        part = columns_of(source, step.from_col, step.cols)
        if step.adds:
            part = row_sum(columns_of(row, step.to_col, step.cols), part)
        row = with_columns(row, part, step.to_col, step.to_col + step.cols, COLS)

    assert Stretches.of_row(row).keys() == symbolic(steps, unknowns, 1).keys()


SPLICED = """
m1 = 9 x 4
m2 = 9 x 8
m3 = 9 x 4
i0 = 8, 7, 6, 3, 5, 4, 2, 1, 0
m1 = accept input
m2 = undefined
m2(:, 0:1) = m1(:, 0:1)
m2(:, 2:3) = m1(:, 2:3)[i0]
m2(:, 4:7) = m1
m3 = undefined
m3 = wide.propagate(m2)
provide output = m3
segment end
"""


def test_rows_whose_stretches_are_one() -> None:
    """Two stretches with equal rows are recognised, even in a row that no other row is like."""
    calls = (
        "m3(3:3, :) = wide.propagate(m2(3:3, :))\n"
        "m3(0:2, :) = wide.propagate(m2(0:2, :))\n"
        "m3(4:8, :) = wide.propagate(m2(4:8, :))"
    )
    other = SPLICED.replace("m3 = wide.propagate(m2)", calls)

    verify_equivalent(NNET, computation(SPLICED), computation(other))
    with pytest.raises(
        EquivalenceError, match="'output' in segment 0 differs in 2 of 9 rows: 3, 4"
    ):
        verify_equivalent(
            NNET, computation(SPLICED), computation(other.replace("6, 3, 5", "6, 5, 3"))
        )
