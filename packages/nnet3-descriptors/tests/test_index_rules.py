"""The rows that components need, and the order of rows that they require."""

import numpy as np
import pytest
from nnet3_descriptors import NetworkError
from nnet3_descriptors.components import (
    BackpropTruncationComponent,
    BackpropTruncationPrecomputedIndexes,
    Component,
    DistributeComponent,
    DistributePrecomputedIndexes,
    GeneralDropoutComponent,
    GeneralDropoutPrecomputedIndexes,
    NoOpComponent,
    PrecomputedIndexes,
    SpecAugmentTimeMaskComponent,
    SpecAugmentTimeMaskPrecomputedIndexes,
    StatisticsExtractionComponent,
    StatisticsExtractionPrecomputedIndexes,
    StatisticsPoolingComponent,
    StatisticsPoolingPrecomputedIndexes,
    TdnnComponent,
    TimeOffsetPrecomputedIndexes,
)
from nnet3_descriptors.indexes import NO_TIME, distinct, index_order, make_indexes


def tdnn(*time_offsets: int) -> TdnnComponent:
    """A time-delay layer of one column."""
    return TdnnComponent(
        time_offsets=time_offsets,
        linear_params=np.ones((1, len(time_offsets))),
        bias_params=[0],
    )


def test_simple_component_needs_the_same_index() -> None:
    """Output rows need only the input rows of the same index."""
    component, indexes = NoOpComponent(dim=1), make_indexes([0, 1, 0], [0, 0, 5])

    splits, needed = component.input_dependencies(indexes)
    computable, used = component.is_computable(
        indexes, splits, needed, np.array([True, False, True])
    )

    np.testing.assert_array_equal(indexes, needed)
    np.testing.assert_array_equal([True, False, True], computable)
    np.testing.assert_array_equal([True, False, True], used)
    assert component.precompute_indexes(indexes, indexes, True) is None


def test_tdnn_needs_all_of_its_offsets() -> None:
    """A row without one of its inputs is not computable, and uses none of them."""
    component, outputs = tdnn(-1, 2), make_indexes(0, [0, 3])

    splits, needed = component.input_dependencies(outputs)
    computable, used = component.is_computable(
        outputs, splits, needed, np.array([True, True, True, False])
    )

    np.testing.assert_array_equal([0, 2, 4], splits)
    np.testing.assert_array_equal(make_indexes(0, [-1, 2, 2, 5]), needed)
    np.testing.assert_array_equal([True, False], computable)
    np.testing.assert_array_equal([True, True, False, False], used)


def test_tdnn_orders_rows_by_time_then_sequence() -> None:
    """Rows of neighbouring times are a fixed distance apart."""
    component = tdnn(-1, 1)
    outputs = make_indexes([0, 0, 1, 1], [0, 1, 0, 1])
    inputs = make_indexes(np.repeat([0, 1], 4), np.tile([-1, 0, 1, 2], 2))

    inputs, outputs = component.reorder_indexes(inputs, outputs)

    np.testing.assert_array_equal(make_indexes(np.tile([0, 1], 2), [0, 0, 1, 1]), outputs)
    np.testing.assert_array_equal(
        make_indexes(np.tile([0, 1], 4), np.repeat([-1, 0, 1, 2], 2)), inputs
    )
    assert component.precompute_indexes(inputs, outputs, True) == TimeOffsetPrecomputedIndexes(
        row_stride=1, row_offsets=(0, 4)
    )


def test_tdnn_interleaves_times_between_output_steps() -> None:
    """With every second output, input times lie in pairs, and a gap at the end is padding."""
    component = tdnn(-1, 0, 1)
    outputs = make_indexes(np.repeat([0, 1], 3), np.tile([0, 2, 4], 2))
    inputs = make_indexes(np.repeat([0, 1], 7), np.tile(np.arange(-1, 6), 2))

    inputs, outputs = component.reorder_indexes(inputs, outputs)

    pairs = [[-1, 0], [1, 2], [3, 4], [5, NO_TIME]]
    np.testing.assert_array_equal(
        make_indexes(np.tile([0, 0, 1, 1], 4), np.repeat(pairs, 2, axis=0).ravel()), inputs
    )
    assert component.precompute_indexes(inputs, outputs, True) == TimeOffsetPrecomputedIndexes(
        row_stride=2, row_offsets=(0, 1, 4)
    )
    again = component.reorder_indexes(inputs, outputs)
    np.testing.assert_array_equal(inputs, again[0])
    np.testing.assert_array_equal(outputs, again[1])


@pytest.mark.parametrize("time_offsets", [(-1, 2), (-1, 0, 1), (-3, 0)])
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("num_x", [1, 2])
def test_first_sequence_tells_about_equal_sequences(
    time_offsets: tuple[int, ...], step: int, num_x: int
) -> None:
    """Order and precomputed indexes of equal sequences follow from the rows of the first one."""
    component, num_sequences = tdnn(*time_offsets), 4
    times = np.arange(0, 12, step)
    needed = distinct((times[:, None] + time_offsets).ravel())
    n, x = np.arange(num_sequences)[:, None, None], np.arange(num_x)[:, None]
    given = [make_indexes(*map(np.ravel, np.broadcast_arrays(n, t, x))) for t in (needed, times)]
    given = [rows[index_order(rows)] for rows in given]

    inputs, outputs = component.reorder_indexes(*given)
    *of_first, input_block, output_block = component.reorder_repeated_indexes(
        *(rows[rows[:, 0] == 0] for rows in given)
    )

    for rows, pattern, block in (
        (inputs, of_first[0], input_block),
        (outputs, of_first[1], output_block),
    ):
        repeated = np.repeat(pattern.reshape(-1, 1, block, 3), num_sequences, axis=1)
        repeated[..., 0] = np.arange(num_sequences)[:, None]
        np.testing.assert_array_equal(rows, repeated.reshape(-1, 3))
    assert component.precompute_indexes(
        inputs, outputs, False
    ) == component.precompute_repeated_indexes(*of_first, False, num_sequences)


def test_first_sequence_does_not_tell_everything() -> None:
    """Rules that must see all sequences return NotImplemented for repeated indexes."""
    rows = make_indexes(0, [0, 1])

    assert NoOpComponent(dim=1).reorder_repeated_indexes(rows, rows) is NotImplemented
    assert NoOpComponent(dim=1).precompute_repeated_indexes(rows, rows, True, 2) is NotImplemented


def test_distinct_values() -> None:
    """Different values are found in ascending order, as numpy.unique finds them."""
    values = np.array([3, -1, 3, 2, 2, -1])

    np.testing.assert_array_equal(np.unique(values), distinct(values))
    np.testing.assert_array_equal([], distinct(values[:0]))


OFFSETS = TimeOffsetPrecomputedIndexes(row_stride=2, row_offsets=(0, 3))
EXTRACTION = StatisticsExtractionPrecomputedIndexes(
    forward_indexes=[[0, 2], [2, 3]], backward_indexes=[0, 0, 1]
)
POOLING = StatisticsPoolingPrecomputedIndexes(
    forward_indexes=[[0, 2], [1, 3]], backward_indexes=[[0, 1], [0, 2], [1, 2]]
)
TRUNCATION = BackpropTruncationPrecomputedIndexes(boundary_rows=[1, 3])
BLOCKS = DistributePrecomputedIndexes(source_blocks=[3, 0, 2])
MASKS = GeneralDropoutPrecomputedIndexes(num_mask_rows=2, indexes=[0, 0, 1, 1])
ROWS = SpecAugmentTimeMaskPrecomputedIndexes(rows=[1, 0, 2], splits=[0, 2, 3])

STATISTICS = StatisticsExtractionComponent(input_dim=1)
POOL = StatisticsPoolingComponent(input_dim=3, left_context=1, right_context=0)
TRUNCATED = BackpropTruncationComponent(dim=1)
DISTRIBUTE = DistributeComponent(input_dim=4, output_dim=2)
DROPOUT = GeneralDropoutComponent(dim=4, block_dim=2)
MASKED = SpecAugmentTimeMaskComponent(dim=1)


@pytest.mark.parametrize(
    ("component", "indexes", "rows_in", "rows_out", "misfit"),
    [
        (tdnn(0, 1), OFFSETS, 8, 3, None),
        (tdnn(0, 1, 2), OFFSETS, 8, 3, "are for 2 time offsets, expected 3"),
        (tdnn(0, 1), OFFSETS, 7, 3, "name input row 7, expected 0 to 6"),
        (tdnn(0, 1), OFFSETS, 8, 4, "name input row 9, expected 0 to 7"),
        (STATISTICS, EXTRACTION, 3, 2, None),
        (STATISTICS, EXTRACTION, 3, 3, "are for 2 output rows, expected 3"),
        (STATISTICS, EXTRACTION, 4, 2, "are for 3 input rows, expected 4"),
        (
            STATISTICS,
            EXTRACTION,
            2,
            2,
            "name input rows 2 to 3 (not included), expected a range within 0 to 2",
        ),
        (POOL, POOLING, 3, 2, None),
        (POOL, POOLING, 3, 1, "are for 2 output rows, expected 1"),
        (POOL, POOLING, 4, 2, "are for 3 input rows, expected 4"),
        (
            POOL,
            POOLING,
            2,
            2,
            "name input rows 1 to 3 (not included), expected a range within 0 to 2",
        ),
        (TRUNCATED, TRUNCATION, 4, 4, None),
        (TRUNCATED, TRUNCATION, 3, 4, "are for 4 input rows, expected 3"),
        (TRUNCATED, TRUNCATION, 3, 3, "name row 3, expected 0 to 2"),
        (DISTRIBUTE, BLOCKS, 2, 3, None),
        (DISTRIBUTE, BLOCKS, 2, 2, "are for 3 output rows, expected 2"),
        (DISTRIBUTE, BLOCKS, 1, 3, "name block 3, expected 0 to 1"),
        (DROPOUT, MASKS, 2, 2, None),
        (DROPOUT, MASKS, 3, 2, "are for 2 input rows, expected 3"),
        (DROPOUT, MASKS, 3, 3, "are for 4 blocks of columns, expected 6"),
        (
            MASKED,
            SpecAugmentTimeMaskPrecomputedIndexes(rows=[1, 0, 1], splits=[0, 2, 3]),
            3,
            3,
            "have row 1 in several places, expected each row once",
        ),
        (
            MASKED,
            SpecAugmentTimeMaskPrecomputedIndexes(rows=[1, 0, 2], splits=[0, 2]),
            3,
            3,
            "have the splits [0, 2], expected them to ascend from 0 to 3",
        ),
        (
            MASKED,
            SpecAugmentTimeMaskPrecomputedIndexes(rows=[1, 0, 2], splits=[0, 2, 2, 3]),
            3,
            3,
            "have the splits [0, 2, 2, 3], expected them to ascend from 0 to 3",
        ),
        (
            MASKED,
            SpecAugmentTimeMaskPrecomputedIndexes(rows=[1, 0, 2], splits=[]),
            3,
            3,
            "have the splits [], expected them to ascend from 0 to 3",
        ),
        (DROPOUT, MASKS, 1, 1, "have 2 masks, expected 1 to 1"),
        (MASKED, ROWS, 3, 3, None),
        (MASKED, ROWS, 2, 3, "are for 3 input rows, expected 2"),
        (MASKED, ROWS, 3, 2, "are for 3 output rows, expected 2"),
    ],
)
def test_misfit(
    component: Component,
    indexes: PrecomputedIndexes,
    rows_in: int,
    rows_out: int,
    misfit: str | None,
) -> None:
    """Indexes for other components or rows are refused with what is expected and found."""
    assert component.INDEXES is type(indexes)
    assert indexes.misfit(component, rows_in, rows_out, backward=True) == misfit


@pytest.mark.parametrize(
    ("indexes", "component", "misfit"),
    [
        (
            StatisticsExtractionPrecomputedIndexes(
                forward_indexes=[[0, 2]], backward_indexes=[0, 1]
            ),
            STATISTICS,
            "name output row 1, expected 0 to 0",
        ),
        (
            StatisticsPoolingPrecomputedIndexes(
                forward_indexes=[[0, 2]], backward_indexes=[[0, 1], [-1, 1]]
            ),
            POOL,
            "name output rows -1 to 1 (not included), expected a range within 0 to 1",
        ),
    ],
)
def test_misfit_of_the_backward_part(
    indexes: PrecomputedIndexes, component: Component, misfit: str
) -> None:
    """Indexes that only a backward command uses are not checked for a forward one."""
    assert indexes.misfit(component, 2, 1, backward=False) is None
    assert indexes.misfit(component, 2, 1, backward=True) == misfit


@pytest.mark.parametrize(
    ("component", "t", "message"),
    [
        (tdnn(-3, 0, 2), 2**31 - 2, "TdnnComponent with time offsets -3 to 2 reads t = 2147483648"),
        (tdnn(-3, 0, 2), 4 - 2**31, None),
        (
            tdnn(-3, 0, 2),
            3 - 2**31,
            "TdnnComponent with time offsets -3 to 2 reads t = -2147483648",
        ),
        (
            StatisticsExtractionComponent(input_dim=1, output_period=10),
            2**31 - 3,
            "StatisticsExtractionComponent with periods of 10 frames reads t = 2147483649",
        ),
        (
            StatisticsExtractionComponent(input_dim=1, output_period=10),
            1 - 2**31,
            "StatisticsExtractionComponent with periods of 10 frames reads t = -2147483650",
        ),
        (StatisticsExtractionComponent(input_dim=1, output_period=8), 2**31 - 3, None),
        (
            StatisticsPoolingComponent(input_dim=3, left_context=2, right_context=4),
            2**31 - 3,
            "StatisticsPoolingComponent with a window from -2 to 4 reads t = 2147483649",
        ),
        (
            StatisticsPoolingComponent(input_dim=3, left_context=2, right_context=4),
            2**31 - 5,
            None,
        ),
    ],
)
def test_inputs_beyond_32_bits(component: Component, t: int, message: str | None) -> None:
    """Inputs beyond the first or last possible t are an error that names this t."""
    indexes = make_indexes(0, t)
    if message is None:
        _, inputs = component.input_dependencies(indexes)
        _, near_0 = component.input_dependencies(make_indexes(0, t % 40))
        assert np.array_equal(inputs.astype(np.int64) - [0, t - t % 40, 0], near_0)
        return
    with pytest.raises(NetworkError) as caught:
        component.input_dependencies(indexes)
    assert str(caught.value) == message + "; expected t from -2147483647 to 2147483647"
