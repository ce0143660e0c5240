"""The rows that components need, and their order: what a plain loop over single indexes gives."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_descriptors import components as c
from nnet3_descriptors.components.index_rules import Windows
from nnet3_descriptors.components.index_rules.time_offsets import TimeGrid, sequences
from nnet3_descriptors.indexes import (
    INT32_MAX,
    LEAST_TIME,
    NO_TIME,
    as_indexes,
    distinct,
    index_keys,
    index_order,
    make_indexes,
)

Index = tuple[int, int, int]

INDEX_SETS = st.sets(
    st.tuples(st.integers(0, 3), st.integers(-12, 12), st.integers(-1, 1)), min_size=1, max_size=60
)


def rows_of(array: np.ndarray) -> list[Index]:
    """The rows of an index array as tuples."""
    return [tuple(row) for row in array.tolist()]


def check_dependencies(
    component: c.Component,
    outputs: set[Index],
    inputs: set[Index],
    wanted: Callable[[Index], list[Index]],
    is_computable: Callable[[list[bool]], bool],
) -> tuple[np.ndarray, np.ndarray]:
    """Asserts that the rules agree with `wanted` and `is_computable`, which look at one index.

    Returns:
        The used inputs and the computable outputs, in no particular order.
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


def tdnn(*time_offsets: int) -> c.TdnnComponent:
    """A time-delay layer of one column."""
    return c.TdnnComponent(
        time_offsets=time_offsets, linear_params=np.ones((1, len(time_offsets))), bias_params=[0]
    )


class TestStatistics:
    """Sums over the frames of a period, and over windows of such sums."""

    @given(INDEX_SETS, INDEX_SETS, st.integers(1, 3), st.integers(1, 4))
    def test_extraction(
        self, outputs: set[Index], inputs: set[Index], input_period: int, ratio: int
    ) -> None:
        """Each row sums the available frames of its period."""
        period = input_period * ratio
        outputs = {(n, t * period + t % period, x) for n, t, x in outputs}
        component = c.StatisticsExtractionComponent(
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
        """Each row sums its window; rows between multiples of the period have no result."""
        right += left == 0 and right == 0
        inputs = {(n, t * period, x) for n, t, x in inputs}
        component = c.StatisticsPoolingComponent(
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
        """Indexes that only the backward computation needs are left out."""
        rows = make_indexes(0, [0, 1])
        extraction = c.StatisticsExtractionComponent(input_dim=2)
        pooling = c.StatisticsPoolingComponent(input_dim=5, left_context=1, right_context=0)

        assert extraction.precompute_indexes(
            rows, rows, False
        ) == c.StatisticsExtractionPrecomputedIndexes(
            forward_indexes=[[0, 1], [1, 2]], backward_indexes=[]
        )
        assert pooling.precompute_indexes(
            rows, rows, False
        ) == c.StatisticsPoolingPrecomputedIndexes(
            forward_indexes=[[0, 1], [0, 2]], backward_indexes=np.empty((0, 2))
        )


@pytest.mark.parametrize(
    "component",
    [
        *(tdnn(-1, 2), tdnn(-1, 0, 1), tdnn(-3, 0)),
        c.StatisticsExtractionComponent(input_dim=2),
        c.StatisticsPoolingComponent(input_dim=3, left_context=2, right_context=1),
    ],
)
@given(
    st.sets(st.tuples(st.integers(-4, 4), st.integers(0, 1)), min_size=1),
    st.sampled_from([1, 3]),
    st.integers(1, 4),
)
@settings(max_examples=settings.default.max_examples // 4)
def test_first_sequence_tells(
    component: c.Component, times: set[tuple[int, int]], step: int, num_sequences: int
) -> None:
    """Order and precomputed indexes of equal sequences follow from the rows of the first one."""

    def of_all(rows: np.ndarray) -> np.ndarray:
        every = np.concatenate([np.add(rows, (n, 0, 0)) for n in range(num_sequences)])
        return every[index_order(every)]

    first = as_indexes([(0, t * step, x) for t, x in sorted(times)])
    is_tdnn = isinstance(component, c.TdnnComponent)
    needed = component.input_dependencies(first)[1] if is_tdnn else first
    given_rows = [of_all(np.unique(rows, axis=0)) for rows in (needed, first)]

    inputs, outputs = component.reorder_indexes(*given_rows)
    *of_first, input_block, output_block = component.reorder_repeated_indexes(
        *(rows[rows[:, 0] == 0] for rows in given_rows)
    )

    for rows, pattern, block in (
        (inputs, of_first[0], input_block),
        (outputs, of_first[1], output_block),
    ):
        repeated = np.repeat(pattern.reshape(-1, 1, block, 3), num_sequences, axis=1)
        repeated[..., 0] = np.arange(num_sequences)[:, None]
        np.testing.assert_array_equal(rows, repeated.reshape(-1, 3))
    assert component.precompute_indexes(
        inputs, outputs, True
    ) == component.precompute_repeated_indexes(*of_first, True, num_sequences)


def test_first_sequence_does_not_tell_everything() -> None:
    """Rules that must see all sequences return NotImplemented for repeated indexes."""
    rows = make_indexes(0, [0, 1])

    assert c.NoOpComponent(dim=1).reorder_repeated_indexes(rows, rows) is NotImplemented
    assert c.NoOpComponent(dim=1).precompute_repeated_indexes(rows, rows, True, 2) is NotImplemented


def convolution(time_offsets: list[int], required: set[int]) -> c.TimeHeightConvolutionComponent:
    """A convolution with one filter and one height."""
    return c.TimeHeightConvolutionComponent(
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
    """Components that read several offsets from the time of the output."""

    OFFSETS = st.lists(st.integers(-4, 4), min_size=1, max_size=4, unique=True)

    def check_rows(self, component: c.Component, outputs: set[Index], inputs: set[Index]) -> None:
        """Asserts that the rows are exactly those of the precomputed indexes."""

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

        self.check_rows(tdnn(*offsets), outputs, inputs)

    @given(INDEX_SETS, INDEX_SETS, OFFSETS, st.integers(1, 3), st.data())
    def test_convolution(
        self,
        outputs: set[Index],
        inputs: set[Index],
        offsets: list[int],
        step: int,
        data: st.DataObject,
    ) -> None:
        """With optional offsets, missing rows are padding."""
        required = data.draw(st.sets(st.sampled_from(offsets), min_size=1))
        outputs = {(n, t * step, x) for n, t, x in outputs}
        inputs |= {(n, t + offset, x) for n, t, x in outputs if t % 3 for offset in required}

        self.check_rows(convolution(offsets, required), outputs, inputs)

    @given(INDEX_SETS, INDEX_SETS, st.integers(1, 3), st.integers(1, 2), st.data())
    def test_attention(
        self, outputs: set[Index], inputs: set[Index], step: int, stride: int, data: st.DataObject
    ) -> None:
        """Output rows are padded to the steps of the input, for the queries."""
        left, right = (data.draw(st.integers(0, 3)) for _ in range(2))
        component = c.RestrictedAttentionComponent(
            key_dim=1,
            value_dim=1,
            num_left_inputs=left + 1,
            num_right_inputs=right,
            time_stride=stride,
            num_left_inputs_required=data.draw(st.integers(0, left)),
            num_right_inputs_required=data.draw(st.integers(0, right)),
        )
        outputs = {(n, t * step, x) for n, t, x in outputs}
        required = component.required_time_offsets
        inputs |= {(n, t + offset, x) for n, t, x in outputs if t % 3 for offset in required}

        self.check_rows(component, outputs, inputs)

    def test_attention_has_a_constant_distance_of_rows(self) -> None:
        """For any requested times, the rows of one offset are consecutive."""
        component = c.RestrictedAttentionComponent(
            key_dim=1, value_dim=1, num_left_inputs=1, num_right_inputs=0, time_stride=4
        )
        outputs = make_indexes(0, [0, 6])
        _, inputs = component.input_dependencies(outputs)

        inputs, outputs = component.reorder_indexes(inputs, outputs)

        np.testing.assert_array_equal([0, NO_TIME, NO_TIME, 6], outputs[:, 1])
        np.testing.assert_array_equal([-4, NO_TIME, 0, 2, NO_TIME, 6], inputs[:, 1])
        assert component.precompute_indexes(
            inputs, outputs, True
        ) == c.TimeOffsetPrecomputedIndexes(row_stride=1, row_offsets=(0, 2))


class TestRows:
    """Components that work row by row, some of them differently on different rows."""

    @given(INDEX_SETS, INDEX_SETS)
    def test_simple(self, outputs: set[Index], inputs: set[Index]) -> None:
        """Output rows need only the input rows of the same index."""
        component = c.NoOpComponent(dim=1)

        rows = check_dependencies(component, outputs, inputs, lambda index: [index], all)

        assert component.precompute_indexes(*rows, True) is None

    @given(INDEX_SETS, INDEX_SETS, st.integers(1, 4))
    def test_distribute(self, outputs: set[Index], inputs: set[Index], blocks: int) -> None:
        """Dividing the output's x gives the block and the x of the input."""
        component = c.DistributeComponent(input_dim=2 * blocks, output_dim=2)

        def wanted(index: Index) -> list[Index]:
            n, t, x = index
            return [(n, t, x // blocks)]

        rows_in, rows_out = check_dependencies(component, outputs, inputs, wanted, all)
        precomputed = component.precompute_indexes(rows_in, rows_out, True)

        for (n, t, x), block in zip(
            rows_of(rows_out), precomputed.source_blocks.tolist(), strict=True
        ):
            assert (n, t, x // blocks) == rows_of(rows_in)[block // blocks]
            assert x % blocks == block % blocks

    @given(INDEX_SETS, st.integers(1, 7), st.integers(1, 3))
    def test_truncation(self, indexes: set[Index], interval: int, recurrence: int) -> None:
        """A boundary lies between a row and its source row."""
        component = c.BackpropTruncationComponent(
            dim=1, zeroing_interval=interval, recurrence_interval=recurrence
        )
        rows = as_indexes(sorted(indexes, key=hash))
        expected = [
            number
            for number, (n, t, _) in enumerate(rows_of(rows))
            if any((time - n) % interval == 0 for time in range(t - recurrence + 1, t + 1))
        ]

        precomputed = component.precompute_indexes(rows, rows, True)

        assert expected == precomputed.boundary_rows.tolist()

    @given(INDEX_SETS, st.integers(0, 5), st.integers(1, 3))
    def test_dropout(self, indexes: set[Index], period: int, blocks: int) -> None:
        """Rows share a mask if they belong to the same sequence and period."""
        component = c.GeneralDropoutComponent(dim=2 * blocks, block_dim=2, time_period=period)
        rows = as_indexes(sorted(indexes, key=hash))
        which = [(n, t // period if period else 0) for n, t, _ in rows_of(rows)]

        precomputed = component.precompute_indexes(rows, rows, True)

        masks = precomputed.indexes.reshape(len(rows), blocks)
        assert (masks == masks[:, :1]).all()
        assert len(set(which)) == precomputed.num_mask_rows
        assert len(set(zip(which, masks[:, 0].tolist(), strict=True))) == len(set(which))
        assert set(range(len(set(which)))) == set(masks[:, 0].tolist())

    @given(INDEX_SETS)
    def test_time_mask(self, indexes: set[Index]) -> None:
        """The rows of each sequence are in the order of time."""
        component = c.SpecAugmentTimeMaskComponent(dim=1)
        rows = as_indexes(sorted(indexes, key=hash))

        precomputed = component.precompute_indexes(rows, rows, True)

        expected = {n: sorted(t for m, t, _ in indexes if m == n) for n, _, _ in indexes}
        found = [rows[part] for part in precomputed.sequences]
        assert expected == {int(part[0, 0]): part[:, 1].tolist() for part in found}
        assert all((part[:, 0] == part[0, 0]).all() for part in found)
        assert list(range(len(rows))) == sorted(precomputed.rows.tolist())

    @pytest.mark.parametrize(
        "component", [c.ConstantComponent(output=[1, 2]), c.DropoutMaskComponent(output_dim=2)]
    )
    @given(outputs=INDEX_SETS)
    def test_no_input(self, component: c.Component, outputs: set[Index]) -> None:
        """A component without input can always be computed."""
        rows_in, rows_out = check_dependencies(component, outputs, set(), lambda _: [], all)

        assert len(rows_in) == 0
        assert len(rows_out) == len(outputs)
        assert component.precompute_indexes(rows_in, rows_out, True) is None


class TestIndexKeys:
    """Indexes as single numbers."""

    @pytest.mark.parametrize("scale", [1, 2**30])
    @given(INDEX_SETS, INDEX_SETS)
    def test_order_is_kept(self, scale: int, first: set[Index], second: set[Index]) -> None:
        """The numbers compare as (n, x, t) do, even if the values need more bits than one has."""
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
    """Arrays become read-only int32 with a checked number of columns, and compare by value."""
    first, second = (
        c.StatisticsPoolingPrecomputedIndexes(
            forward_indexes=[[0, end]], backward_indexes=np.empty((0, 2))
        )
        for end in (1, 2)
    )

    assert first != second
    assert first.forward_indexes.dtype == np.int32
    assert not first.forward_indexes.flags.writeable


TIMES = st.one_of(
    st.lists(st.integers(-6, 6), min_size=1, max_size=8),
    st.lists(st.sampled_from((LEAST_TIME, -1, 0, INT32_MAX)), min_size=1, max_size=4),
    st.tuples(st.integers(-9, 9), st.integers(1, 3), st.integers(1, 6)).map(
        lambda grid: list(range(grid[0], grid[0] + grid[1] * grid[2], grid[1]))
    ),
)


class TestTimeGrid:
    """The smallest grid of times that contains the rows, and the sequences of the rows."""

    @given(TIMES, st.data())
    def test_smallest(self, times: list[int], data: st.DataObject) -> None:
        """The grid has the first and last time; its step divides all distances."""
        present = sorted(set(times))
        step = math.gcd(*(time - present[0] for time in present))
        places = data.draw(st.lists(st.integers(0, len(times)), max_size=2))
        padded = list(times)
        for place in places:
            padded.insert(place, NO_TIME)

        grid = TimeGrid.of(make_indexes(0, padded))

        assert (grid.start, grid.last, grid.step) == (present[0], present[-1], step)
        assert grid.count == (1 if step == 0 else (present[-1] - present[0]) // step + 1)

    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 1)), min_size=1, max_size=6))
    def test_sequences(self, pairs: list[tuple[int, int]]) -> None:
        """Each (n, x) occurs once, in ascending order."""
        indexes = make_indexes([n for n, _ in pairs], 0, [x for _, x in pairs])

        found = sequences(indexes).tolist()

        assert found == sorted({(n << 32) + x for n, x in pairs})


WINDOW_LISTS = st.integers(1, 4).flatmap(
    lambda step: st.lists(
        st.none() | st.builds(range, st.integers(-9, 9), st.integers(10, 20), st.just(step)),
        min_size=1,
        max_size=5,
    ).filter(any)
)


@given(WINDOW_LISTS, INDEX_SETS, INDEX_SETS)
def test_rows_within_windows(windows, existing: set[Index], readers: set[Index]) -> None:
    """Rows in windows, and the union of windows, are those that a list of all of them has."""
    rows, asking = as_indexes(sorted(existing)), as_indexes(sorted(readers))
    expected = [
        [(n, t + offset, x) for offset in windows[t % len(windows)] or ()]
        for n, t, x in sorted(readers)
    ]

    found = Windows.of(windows)
    assert found is not None
    order, first, end = found.rows_within(rows, asking)

    assert [rows_of(rows[order[a:b]]) for a, b in zip(first, end, strict=True)] == [
        [row for row in wanted if row in existing] for wanted in expected
    ]
    union = rows_of(found.union(asking, "a reader"))
    assert len(union) == len(set(union))
    assert set(union) == {row for wanted in expected for row in wanted}


@pytest.mark.parametrize("windows", [[None], [range(0, 4, 1), range(0, 4, 2)]])
def test_no_windows(windows) -> None:
    """Without a window, or with windows of several steps, there are none to look in."""
    assert Windows.of(windows) is None


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
    expected = c.TimeOffsetPrecomputedIndexes(row_stride=2, row_offsets=(0, 1, 4))
    assert component.precompute_indexes(inputs, outputs, True) == expected
    again = component.reorder_indexes(inputs, outputs)
    np.testing.assert_array_equal(inputs, again[0])
    np.testing.assert_array_equal(outputs, again[1])


def test_distinct_values() -> None:
    """Different values are found in ascending order, as numpy.unique finds them."""
    values = np.array([3, -1, 3, 2, 2, -1])

    np.testing.assert_array_equal(np.unique(values), distinct(values))
    np.testing.assert_array_equal([], distinct(values[:0]))


@pytest.mark.parametrize(
    ("component", "t"),
    [
        (tdnn(-3, 0, 2), 4 - 2**31),
        (c.StatisticsExtractionComponent(input_dim=1, output_period=8), 2**31 - 3),
        (c.StatisticsPoolingComponent(input_dim=3, left_context=2, right_context=4), 2**31 - 5),
    ],
)
def test_inputs_within_32_bits(component: c.Component, t: int) -> None:
    """Near the first and the last possible t, inputs are at the same distances as elsewhere."""
    _, inputs = component.input_dependencies(make_indexes(0, t))
    _, near_0 = component.input_dependencies(make_indexes(0, t % 40))

    assert np.array_equal(inputs.astype(np.int64) - [0, t - t % 40, 0], near_0)
