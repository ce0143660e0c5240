"""Input locations, and the lists of rows of forward and backward commands."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from nnet3_compiler.backward import (
    contiguous_lists,
    list_numbers,
    most_runs,
    row_ranges,
    unique_lists,
)
from nnet3_compiler.locations import arranged

rows = st.lists(st.integers(-1, 4), min_size=1, max_size=12).map(lambda x: np.array(x, np.int32))


class TestArranged:
    """Columns that group the rows of each source step."""

    def test_rows_of_one_step_stay_together(self) -> None:
        """A step that most rows use gets its own column."""
        step_of_row = np.repeat([0, 1, 2], 2)
        columns = np.array([[0, 2, 3], [2, 4, 5]], np.int32)

        assert [column.tolist() for column in arranged(columns, step_of_row)] == [
            [2, 2, 3],
            [-1, 4, 5],
            [0, -1, -1],
        ]


class TestBackwardLists:
    """Lists of rows for commands that add to rows."""

    @given(rows)
    def test_contiguous_lists(self, mapping: np.ndarray) -> None:
        """Each list has every row in one run; together the lists have all."""
        lists = contiguous_lists(mapping)

        assert np.array_equal(np.max([mapping * 0 - 1, *lists], axis=0), mapping)
        assert len(lists) == most_runs(mapping)
        assert sum(int((part >= 0).sum()) for part in lists) == int((mapping >= 0).sum())
        for part in lists:
            ranges = row_ranges(part, 5)
            for row, (begin, end) in enumerate(ranges.tolist()):
                places = np.flatnonzero(part == row)
                assert places.tolist() == list(range(max(begin, 0), max(end, 0)))

    @given(
        st.lists(
            st.sampled_from([(-1, -1), (1, 0), (1, 1), (2, 0), (3, 0)]), min_size=1, max_size=9
        )
    )
    def test_unique_lists(self, pairs: list[tuple[int, int]]) -> None:
        """Each list has every row of a matrix once; together they have all terms in place."""
        table, matrix_of = np.array(pairs, np.int32), np.array([0, 1, 2, 2], np.int32)
        lists = unique_lists(table, list_numbers(table, matrix_of))

        assert np.array_equal(np.max([table * 0 - 1, *lists], axis=0), table)
        assert all((part >= 0).any() for part in lists)
        for part in lists:
            named = [(matrix_of[pair[0]], pair[1]) for pair in part.tolist() if pair[0] >= 0]
            assert len(set(named)) == len(named)
