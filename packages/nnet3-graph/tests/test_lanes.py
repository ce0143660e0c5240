"""Sequences with equal patterns of indexes are found."""

from hypothesis import given
from hypothesis import strategies as st
from nnet3_descriptors.indexes import as_indexes
from nnet3_graph.lanes import group_sequences

PATTERNS = [{(0, 0)}, {(0, 0), (1, 0)}, {(0, 0), (1, 1)}, {(5, 0), (1, 0)}]

TABLES = st.lists(
    st.dictionaries(
        st.sampled_from([-5, 0, 1, 2, 1000]), st.sampled_from(PATTERNS), min_size=1, max_size=5
    ),
    min_size=1,
    max_size=3,
)


def arrays_of(tables):
    """Each table as an array of indexes."""
    return [as_indexes([(n, *row) for n, rows in each.items() for row in rows]) for each in tables]


@given(TABLES, st.randoms(use_true_random=False))
def test_lanes_are_equal_patterns(tables, random):
    """Two sequences share a lane just if every table has the same (t, x) for both."""
    arrays = []
    for table in tables:
        rows = [(n, t, x) for n, pattern in table.items() for t, x in pattern]
        random.shuffle(rows)
        arrays.append(as_indexes(rows))

    lanes = group_sequences(arrays)

    sequences = sorted({n for table in tables for n in table})
    assert lanes.sequences.tolist() == sequences
    lane_of = dict(zip(sequences, lanes.lane_of.tolist(), strict=True))
    for first in sequences:
        for second in sequences:
            same = all(table.get(first) == table.get(second) for table in tables)
            assert same == (lane_of[first] == lane_of[second])
    for lane, representative in enumerate(lanes.representatives.tolist()):
        assert lanes.lane_of[representative] == lane


@given(TABLES)
def test_representative_rows(tables):
    """One sequence of each lane is kept, with the lane as n."""
    arrays = [
        as_indexes([(n, *row) for n, rows in each.items() for row in rows]) for each in tables
    ]
    lanes = group_sequences(arrays)

    for table, array in zip(tables, arrays, strict=True):
        kept = [tuple(row) for row in lanes.representative_rows(array).tolist()]
        expected = {
            (lane, *row)
            for lane, rank in enumerate(lanes.representatives.tolist())
            for row in table.get(int(lanes.sequences[rank]), ())
        }
        assert set(kept) == expected
        assert len(kept) == len(expected)


@given(TABLES, TABLES)
def test_earlier_lanes_are_kept_apart(first, second):
    """Sequences that differed in an earlier segment do so in the next, and none is lost."""
    previous = group_sequences(arrays_of(first))

    lanes = group_sequences(arrays_of(second), previous)

    lane_of = dict(zip(lanes.sequences.tolist(), lanes.lane_of.tolist(), strict=True))
    before = dict(zip(previous.sequences.tolist(), previous.lane_of.tolist(), strict=True))
    assert before.keys() <= lane_of.keys()
    for one, lane in lane_of.items():
        for other, other_lane in lane_of.items():
            if lane == other_lane:
                assert before.get(one) == before.get(other)
