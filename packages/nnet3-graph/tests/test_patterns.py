"""Sequences with the same indexes share a pattern."""

from hypothesis import given
from hypothesis import strategies as st
from nnet3_descriptors.indexes import as_indexes
from nnet3_graph.sets.index_set import find_patterns

ROWS = [{(0, 0)}, {(0, 0), (1, 0)}, {(0, 0), (1, 1)}, {(5, 0), (1, 0)}]

TABLES = st.lists(
    st.dictionaries(
        st.sampled_from([-5, 0, 1, 2, 1000]), st.sampled_from(ROWS), min_size=1, max_size=5
    ),
    min_size=1,
    max_size=3,
)


def arrays_of(tables):
    """Each table as an array of indexes."""
    return [as_indexes([(n, *row) for n, rows in each.items() for row in rows]) for each in tables]


@given(TABLES, st.randoms(use_true_random=False))
def test_equal_indexes_are_one_pattern(tables, random):
    """Two sequences share a pattern if and only if every table has the same (t, x) for both."""
    arrays = []
    for table in tables:
        rows = [(n, t, x) for n, rows in table.items() for t, x in rows]
        random.shuffle(rows)
        arrays.append(as_indexes(rows))

    patterns = find_patterns(arrays)

    sequences = sorted({n for table in tables for n in table})
    assert patterns.sequences.tolist() == sequences
    pattern_of = dict(zip(sequences, patterns.pattern_of.tolist(), strict=True))
    for first in sequences:
        for second in sequences:
            same = all(table.get(first) == table.get(second) for table in tables)
            assert same == (pattern_of[first] == pattern_of[second])
    for pattern, representative in enumerate(patterns.representatives.tolist()):
        assert patterns.pattern_of[representative] == pattern


@given(TABLES)
def test_representative_rows(tables):
    """One sequence of each pattern is kept; its n is the number of the pattern."""
    arrays = arrays_of(tables)
    patterns = find_patterns(arrays)

    for table, array in zip(tables, arrays, strict=True):
        kept = [tuple(row) for row in patterns.representative_rows(array).tolist()]
        expected = {
            (pattern, *row)
            for pattern, rank in enumerate(patterns.representatives.tolist())
            for row in table.get(int(patterns.sequences[rank]), ())
        }
        assert set(kept) == expected
        assert len(kept) == len(expected)


@given(TABLES, TABLES)
def test_earlier_patterns_are_kept_apart(first, second):
    """Sequences with different patterns in one segment keep them apart in the next."""
    previous = find_patterns(arrays_of(first))

    patterns = find_patterns(arrays_of(second), previous)

    pattern_of = dict(zip(patterns.sequences.tolist(), patterns.pattern_of.tolist(), strict=True))
    before = dict(zip(previous.sequences.tolist(), previous.pattern_of.tolist(), strict=True))
    assert before.keys() <= pattern_of.keys()
    for one, pattern in pattern_of.items():
        for other, other_pattern in pattern_of.items():
            if pattern == other_pattern:
                assert before.get(one) == before.get(other)
