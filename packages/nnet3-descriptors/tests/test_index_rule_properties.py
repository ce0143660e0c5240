"""Index rules over whole arrays give what a plain loop over single indexes gives."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_descriptors.components import (
    Component,
    StatisticsExtractionComponent,
    StatisticsExtractionPrecomputedIndexes,
    StatisticsPoolingComponent,
    StatisticsPoolingPrecomputedIndexes,
    TdnnComponent,
    TimeHeightConvolutionComponent,
)
from nnet3_descriptors.components import ComponentProperties as Property
from nnet3_descriptors.errors import NetworkError, Nnet3Error
from nnet3_descriptors.indexes import NO_TIME, as_indexes, index_keys, make_indexes

Index = tuple[int, int, int]

INDEX_SETS = st.sets(
    st.tuples(st.integers(0, 3), st.integers(-12, 12), st.integers(-1, 1)), min_size=1, max_size=60
)


def rows_of(array: np.ndarray) -> list[Index]:
    """The rows of an index array as tuples."""
    return [tuple(row) for row in array.tolist()]


def check_dependencies(
    component: Component,
    outputs: set[Index],
    inputs: set[Index],
    wanted: Callable[[Index], list[Index]],
    is_computable: Callable[[list[bool]], bool],
) -> tuple[np.ndarray, np.ndarray]:
    """Asserts that the rules are those of `wanted` and `is_computable`, which look at one index.

    Returns:
        The inputs that are used and the outputs that can be computed, in no particular order.
    """
    rows = as_indexes(sorted(outputs, key=hash))
    splits, needed = component.input_dependencies(rows)
    available = np.array([row in inputs for row in rows_of(needed)], dtype=bool)
    computable, used = component.is_computable(rows, splits, needed, available)

    assert splits.dtype == np.int64
    assert needed.dtype == np.int32
    used_rows = set()
    for number, row in enumerate(rows_of(rows)):
        part = slice(splits[number], splits[number + 1])
        there = [index in inputs for index in wanted(row)]
        assert wanted(row) == rows_of(needed[part])
        assert is_computable(there) == computable[number]
        assert (there if computable[number] else [False] * len(there)) == used[part].tolist()
        used_rows |= set(rows_of(needed[part][used[part]]))
    return as_indexes(sorted(used_rows, key=hash)), rows[computable]


def times_between(index: Index, first: int, last: int, step: int = 1) -> list[Index]:
    """The indexes of other times, from first to last."""
    n, _, x = index
    return [(n, t, x) for t in range(first, last + 1, step)]


class TestStatistics:
    """Sums over the frames of a period, and over windows of these."""

    @given(INDEX_SETS, INDEX_SETS, st.integers(1, 3), st.integers(1, 4))
    def test_extraction(
        self, outputs: set[Index], inputs: set[Index], input_period: int, ratio: int
    ) -> None:
        """Each row sums the frames of its period that there are."""
        period = input_period * ratio
        outputs = {(n, t * period + t % period, x) for n, t, x in outputs}
        component = StatisticsExtractionComponent(
            input_dim=2, input_period=input_period, output_period=period
        )

        def wanted(index: Index) -> list[Index]:
            start = index[1] // period * period
            return times_between(index, start, start + period - 1, input_period)

        rows_in, rows_out = check_dependencies(component, outputs, inputs, wanted, any)
        rows_in, rows_out = component.reorder_indexes(rows_in, rows_out)
        precomputed = component.precompute_indexes(rows_in, rows_out, True)

        assert rows_of(rows_out) == sorted(rows_of(rows_out), key=lambda row: (row[0], row[2]))
        assert len(rows_out) == len(precomputed.counts)
        for number, row in enumerate(rows_of(rows_out)):
            begin, end = precomputed.forward_indexes[number]
            assert [i for i in wanted(row) if i in inputs] == rows_of(rows_in[begin:end])
            assert end - begin == precomputed.counts[number]
            assert (precomputed.backward_indexes[begin:end] == number).all()
        assert len(rows_in) == len(precomputed.backward_indexes)

    @given(INDEX_SETS, INDEX_SETS, st.integers(1, 3), st.integers(0, 4), st.integers(0, 4))
    def test_pooling(
        self, outputs: set[Index], inputs: set[Index], period: int, left: int, right: int
    ) -> None:
        """Each row sums its window; rows between the multiples of the period have none."""
        right += left == 0 and right == 0
        inputs = {(n, t * period, x) for n, t, x in inputs}
        component = StatisticsPoolingComponent(
            input_dim=3,
            input_period=period,
            left_context=left * period,
            right_context=right * period,
        )

        def wanted(index: Index) -> list[Index]:
            t = index[1]
            on_grid = t % period == 0
            last = t + right * period if on_grid else t - left * period - 1
            return times_between(index, t - left * period, last, period)

        rows_in, rows_out = check_dependencies(component, outputs, inputs, wanted, any)
        rows_in, rows_out = component.reorder_indexes(rows_in, rows_out)
        precomputed = component.precompute_indexes(rows_in, rows_out, True)

        sums = [
            [row for row in range(len(rows_in)) if rows_of(rows_in)[row] in wanted(index)]
            for index in rows_of(rows_out)
        ]
        assert sums == [list(range(*pair)) for pair in precomputed.forward_indexes]
        reached = [[i for i, rows in enumerate(sums) if row in rows] for row in range(len(rows_in))]
        assert reached == [list(range(*pair)) for pair in precomputed.backward_indexes]

    def test_without_backward_computation(self) -> None:
        """What only the backward computation needs is left out."""
        rows = make_indexes(0, [0, 1])
        extraction = StatisticsExtractionComponent(input_dim=2)
        pooling = StatisticsPoolingComponent(input_dim=5, left_context=1, right_context=0)

        assert extraction.precompute_indexes(
            rows, rows, False
        ) == StatisticsExtractionPrecomputedIndexes(
            forward_indexes=[[0, 1], [1, 2]], backward_indexes=[]
        )
        assert pooling.precompute_indexes(rows, rows, False) == StatisticsPoolingPrecomputedIndexes(
            forward_indexes=[[0, 1], [0, 2]], backward_indexes=np.empty((0, 2))
        )

    def test_two_outputs_in_one_period(self) -> None:
        """An output at each frame, though statistics are taken over periods, is refused."""
        component = StatisticsExtractionComponent(input_dim=2, output_period=5)

        with pytest.raises(NetworkError, match="must lie in different periods"):
            component.precompute_indexes(
                make_indexes(0, np.arange(5)), make_indexes(0, [0, 1]), True
            )

    def test_promises(self) -> None:
        """What the backward computation reads depends on what is computed."""
        needs = [
            component.properties & (Property.BACKPROP_NEEDS_INPUT | Property.BACKPROP_NEEDS_OUTPUT)
            for component in (
                StatisticsExtractionComponent(input_dim=2),
                StatisticsExtractionComponent(input_dim=2, include_variance=False),
                StatisticsPoolingComponent(input_dim=5, left_context=1, right_context=0),
                StatisticsPoolingComponent(
                    input_dim=5, left_context=1, right_context=0, num_log_count_features=1
                ),
            )
        ]

        assert needs == [
            Property.BACKPROP_NEEDS_INPUT,
            Property(0),
            Property.BACKPROP_NEEDS_INPUT,
            Property.BACKPROP_NEEDS_OUTPUT,
        ]


def tdnn(time_offsets: list[int]) -> TdnnComponent:
    """A time-delay layer of one column."""
    return TdnnComponent(
        time_offsets=time_offsets, linear_params=np.ones((1, len(time_offsets))), bias_params=[0]
    )


def convolution(time_offsets: list[int], required: set[int]) -> TimeHeightConvolutionComponent:
    """A convolution with one filter and one height."""
    return TimeHeightConvolutionComponent(
        num_filters_in=1,
        num_filters_out=1,
        height_in=1,
        height_out=1,
        offsets=[(offset, 0) for offset in sorted(time_offsets)],
        required_time_offsets=sorted(required),
        linear_params=np.ones((1, len(time_offsets))),
        bias_params=[0],
    )


class TestTimeOffsets:
    """Components that look at several offsets from the time of the output."""

    OFFSETS = st.lists(st.integers(-4, 4), min_size=1, max_size=4, unique=True)

    def check_rows(self, component: Component, outputs: set[Index], inputs: set[Index]) -> None:
        """Asserts that the rows lie where the precomputed indexes say, and no others do."""

        def wanted(index: Index) -> list[Index]:
            n, t, x = index
            return [(n, t + offset, x) for offset in component.time_offsets]

        def is_computable(there: list[bool]) -> bool:
            found = {o for o, ok in zip(component.time_offsets, there, strict=True) if ok}
            return found >= set(component.required_time_offsets)

        rows_in, rows_out = check_dependencies(component, outputs, inputs, wanted, is_computable)
        if len(rows_out) == 0:
            return
        ordered_in, ordered_out = component.reorder_indexes(rows_in, rows_out)
        precomputed = component.precompute_indexes(ordered_in, ordered_out, True)

        for given_rows, ordered in ((rows_in, ordered_in), (rows_out, ordered_out)):
            real = [row for row in rows_of(ordered) if row[1] != NO_TIME]
            assert sorted(real) == sorted(rows_of(given_rows))
        for number, (n, t, x) in enumerate(rows_of(ordered_out)):
            for offset, start in zip(component.time_offsets, precomputed.row_offsets, strict=True):
                row = tuple(ordered_in[number * precomputed.row_stride + start].tolist())
                needed = (n, t + offset, x)
                is_real = t != NO_TIME and needed in inputs
                assert row == needed if is_real else (row[0], row[2]) == (n, x)
                assert is_real or t == NO_TIME or row[1] == NO_TIME
        again_in, again_out = component.reorder_indexes(ordered_in, ordered_out)
        assert rows_of(again_in) == rows_of(ordered_in)
        assert rows_of(again_out) == rows_of(ordered_out)
        assert component.precompute_indexes(again_in, again_out, False) == precomputed

    @given(INDEX_SETS, INDEX_SETS, OFFSETS, st.integers(1, 3))
    def test_tdnn(
        self, outputs: set[Index], inputs: set[Index], offsets: list[int], step: int
    ) -> None:
        """All offsets are required; outputs may be at every step-th time."""
        outputs = {(n, t * step, x) for n, t, x in outputs}
        inputs |= {(n, t + offset, x) for n, t, x in outputs if t % 3 for offset in offsets}

        self.check_rows(tdnn(offsets), outputs, inputs)

    @given(INDEX_SETS, INDEX_SETS, OFFSETS, st.integers(1, 3), st.data())
    def test_convolution(
        self,
        outputs: set[Index],
        inputs: set[Index],
        offsets: list[int],
        step: int,
        data: st.DataObject,
    ) -> None:
        """Some offsets are optional: what is missing there is padding."""
        required = data.draw(st.sets(st.sampled_from(offsets), min_size=1))
        outputs = {(n, t * step, x) for n, t, x in outputs}
        inputs |= {(n, t + offset, x) for n, t, x in outputs if t % 3 for offset in required}

        self.check_rows(convolution(offsets, required), outputs, inputs)


class TestIndexKeys:
    """One number for each index."""

    @pytest.mark.parametrize("scale", [1, 2**30])
    @given(INDEX_SETS, INDEX_SETS)
    def test_order_is_kept(self, scale: int, first: set[Index], second: set[Index]) -> None:
        """Numbers compare as (n, x, t) do, whether or not all bits would fit into one."""
        indexes = [np.array(sorted(rows)) * np.array([scale, scale, scale]) // 16
                   for rows in (first, second)]  # fmt: skip
        keys = np.concatenate(index_keys(*indexes)).tolist()
        tuples = [(n, x, t) for n, t, x in np.concatenate(indexes).tolist()]

        assert [key < keys[0] for key in keys] == [row < tuples[0] for row in tuples]
        assert [key == keys[-1] for key in keys] == [row == tuples[-1] for row in tuples]

    def test_no_indexes(self) -> None:
        """An empty array has no numbers."""
        assert index_keys(np.empty((0, 3), np.int32))[0].shape == (0,)


def test_precomputed_indexes_are_checked_and_compared() -> None:
    """Arrays are made read-only int32; the number of columns is checked; equality is by value."""
    first, second = (
        StatisticsPoolingPrecomputedIndexes(
            forward_indexes=[[0, end]], backward_indexes=np.empty((0, 2))
        )
        for end in (1, 2)
    )

    assert first != second
    assert first.forward_indexes.dtype == np.int32
    assert not first.forward_indexes.flags.writeable
    with pytest.raises(Nnet3Error, match=r"'forward_indexes' must be \(rows, 2\), got \(3,\)"):
        StatisticsPoolingPrecomputedIndexes(forward_indexes=[0, 1, 2], backward_indexes=[[0, 1]])
