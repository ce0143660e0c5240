"""The rows that components need, and the order of rows that they require."""

import numpy as np
import pytest
from nnet3_descriptors.components import (
    Component,
    NoOpComponent,
    StatisticsExtractionComponent,
    StatisticsPoolingComponent,
    TdnnComponent,
    TimeOffsetPrecomputedIndexes,
)
from nnet3_descriptors.indexes import NO_TIME, distinct, index_order, make_indexes


def tdnn(*time_offsets: int) -> TdnnComponent:
    """A time-delay layer of one column."""
    return TdnnComponent(
        time_offsets=time_offsets, linear_params=np.ones((1, len(time_offsets))), bias_params=[0]
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


@pytest.mark.parametrize(
    ("component", "t"),
    [
        (tdnn(-3, 0, 2), 4 - 2**31),
        (StatisticsExtractionComponent(input_dim=1, output_period=8), 2**31 - 3),
        (StatisticsPoolingComponent(input_dim=3, left_context=2, right_context=4), 2**31 - 5),
    ],
)
def test_inputs_within_32_bits(component: Component, t: int) -> None:
    """Near the first and the last possible t, inputs are at the same distances as elsewhere."""
    _, inputs = component.input_dependencies(make_indexes(0, t))
    _, near_0 = component.input_dependencies(make_indexes(0, t % 40))

    assert np.array_equal(inputs.astype(np.int64) - [0, t - t % 40, 0], near_0)
