"""Formulas compared with loops over single values, which find rows only by (n, t, x)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from formula_calls import NO_TIME, Array, Setting, random_output_indexes, setting

Rows = dict[tuple[int, int, int], Array]
"""The values of rows by n, t and x, without missing times."""


def rows_of(indexes: Array, values: Array) -> Rows:
    """Returns the values of rows by their indexes, without padding."""
    pairs = zip(indexes.tolist(), values, strict=True)
    return {(n, t, x): row for (n, t, x), row in pairs if t != NO_TIME}


def assert_rows(made: Setting, x: Array, y: Array, naive: Any) -> None:
    """Asserts that each output row is the naive function's result."""
    given = rows_of(made.input_indexes, x)
    found = rows_of(made.output_indexes, y)
    assert found
    for index, row in found.items():
        np.testing.assert_allclose(row, naive(made.component, given, *index), rtol=1e-9, atol=1e-9)


def is_missing(made: Setting) -> bool:
    """Tells whether an input of an output row is missing."""
    given = rows_of(made.input_indexes, made.input_indexes)
    return any(
        (n, t + offset, x) not in given
        for n, t, x in rows_of(made.output_indexes, made.output_indexes)
        for offset in made.component.time_offsets
    )


def naive_convolution(c: Any, given: Rows, n: int, t: int, x: int) -> list[float]:
    """Returns a row of TimeHeightConvolutionComponent: a loop for each axis of the sums."""
    row = []
    for height in range(c.height_out):
        for filter_out in range(c.num_filters_out):
            total = float(c.bias_params[filter_out])
            for number, (time_offset, height_offset) in enumerate(c.offsets):
                values = given.get((n, t + time_offset, x))
                height_in = height * c.height_subsample_out + height_offset
                if values is None or not 0 <= height_in < c.height_in:
                    continue
                for filter_in in range(c.num_filters_in):
                    weight = c.linear_params[filter_out, number * c.num_filters_in + filter_in]
                    total += float(weight) * values[height_in * c.num_filters_in + filter_in]
            row.append(total)
    return row


@pytest.mark.parametrize("seed", range(8))
def test_time_height_convolution(seed: int) -> None:
    """Each value is a sum over offsets and filters; missing and outside rows add nothing."""
    rng = np.random.default_rng(seed)
    stride, subsample = rng.integers(1, 4), rng.integers(1, 3)
    made = setting(
        "type=TimeHeightConvolutionComponent num-filters-in=2 num-filters-out=3 height-in=5 "
        f"height-out={4 // subsample + 1} height-subsample-out={subsample} bias-stddev=1 "
        f"offsets=-{stride},-1;-{stride},0;0,0;0,1;{2 * stride},-1 required-time-offsets=0",
        random_output_indexes(rng, step=int(rng.integers(1, 4)), x=2),
        rng,
        missing=0.3,
    )
    assert is_missing(made)
    x = made.random_x(rng)

    assert_rows(made, x, made.propagated(x).y, naive_convolution)


def naive_attention(c: Any, given: Rows, n: int, t: int, x: int) -> list[float]:
    """Returns a row of RestrictedAttentionComponent; a missing row is 0."""
    key_dim, value_dim = c.key_dim, c.value_dim
    size = 2 * key_dim + value_dim + c.context_dim
    row = []
    for head in range(c.num_heads):
        start = head * size
        here = given[n, t, x]
        query = start + key_dim + value_dim
        exponentials, values = [], []
        for position in range(c.context_dim):
            offset = (position - c.num_left_inputs) * c.time_stride
            there = given.get((n, t + offset, x), np.zeros(c.input_dim))
            logit = here[query + key_dim + position]
            for column in range(key_dim):
                logit += c.key_scale * here[query + column] * there[start + column]
            exponentials.append(math.exp(logit))
            values.append([there[start + key_dim + column] for column in range(value_dim)])
        weights = [exponential / sum(exponentials) for exponential in exponentials]
        for column in range(value_dim):
            total = 0.0
            for position, weight in enumerate(weights):
                total += weight * values[position][column]
            row.append(total)
        if c.output_context:
            row.extend(weights)
    return row


@pytest.mark.parametrize("seed", range(8))
def test_attention(seed: int) -> None:
    """Each value is a mean of values at nearby times; missing keys and values are 0."""
    rng = np.random.default_rng(seed)
    made = setting(
        "type=RestrictedAttentionComponent num-heads=2 key-dim=2 value-dim=3 num-left-inputs=2 "
        f"num-right-inputs=1 num-left-inputs-required=0 num-right-inputs-required=0 "
        f"time-stride={rng.integers(1, 3)} output-context={rng.choice(['true', 'false'])}",
        random_output_indexes(rng, step=int(rng.integers(1, 4)), x=2),
        rng,
        missing=0.2,
    )
    assert is_missing(made)
    x = made.random_x(rng)

    assert_rows(made, x, made.propagated(x).y, naive_attention)


def naive_tdnn(c: Any, given: Rows, n: int, t: int, x: int) -> list[float]:
    """Returns a row of TdnnComponent."""
    row = []
    for output in range(c.output_dim):
        total = float(c.bias_params[output]) if c.bias_params.size else 0.0
        for number, offset in enumerate(c.time_offsets):
            for column in range(c.input_dim):
                weight = c.linear_params[output, number * c.input_dim + column]
                total += float(weight) * given[n, t + offset, x][column]
        row.append(total)
    return row


@pytest.mark.parametrize("seed", range(4))
def test_tdnn(seed: int) -> None:
    """Each value is a sum over columns and offsets, which can have any order."""
    rng = np.random.default_rng(seed)
    made = setting(
        "type=TdnnComponent time-offsets=3,-1,0 input-dim=2 output-dim=3 "
        f"use-bias={rng.choice(['true', 'false'])}",
        random_output_indexes(rng, step=int(rng.integers(1, 4)), x=2),
        rng,
    )
    x = made.random_x(rng)

    assert_rows(made, x, made.propagated(x).y, naive_tdnn)


def in_period(given: Rows, n: int, begin: int, end: int, x: int) -> Iterator[Array]:
    """Yields the existing rows from `begin` to before `end`."""
    return (given[n, t, x] for t in range(begin, end) if (n, t, x) in given)


def naive_extraction(c: Any, given: Rows, n: int, t: int, x: int) -> list[float]:
    """Returns a row of StatisticsExtractionComponent."""
    begin = t // c.output_period * c.output_period
    row = [0.0] * c.output_dim
    for values in in_period(given, n, begin, begin + c.output_period, x):
        row[0] += 1
        for column, value in enumerate(values, start=1):
            row[column] += value
            if c.include_variance:
                row[column + c.input_dim] += value * value
    return row


@pytest.mark.parametrize("seed", range(4))
def test_statistics_extraction(seed: int) -> None:
    """Each row has count, sums and sums of squares of the rows in a period."""
    rng = np.random.default_rng(seed)
    made = setting(
        "type=StatisticsExtractionComponent input-dim=2 input-period=2 output-period=6 "
        f"include-variance={rng.choice(['true', 'false'])}",
        random_output_indexes(rng, step=6, x=2),
        rng,
        missing=0.3,
    )
    x = made.random_x(rng)

    assert_rows(made, x, made.propagated(x).y, naive_extraction)


def naive_pooling(c: Any, given: Rows, n: int, t: int, x: int) -> list[float]:
    """Returns a row of StatisticsPoolingComponent."""
    totals = [0.0] * c.input_dim
    for values in in_period(given, n, t - c.left_context, t + c.right_context + 1, x):
        for column, value in enumerate(values):
            totals[column] += value
    count, *sums = totals
    row = [total / count for total in sums]
    if c.output_stddevs:
        means, half = row, len(row) // 2
        row = means[:half]
        for mean, square in zip(means[:half], means[half:], strict=True):
            row.append(math.sqrt(max(square - mean * mean, c.variance_floor)))
    return [math.log(count)] * c.num_log_count_features + row


@pytest.mark.parametrize("seed", range(4))
def test_statistics_pooling(seed: int) -> None:
    """Each row has means and standard deviations of a window; variances are floored."""
    rng = np.random.default_rng(seed)
    made = setting(
        "type=StatisticsPoolingComponent input-dim=5 left-context=2 right-context=3 "
        f"num-log-count-features={rng.integers(3)} variance-floor=0.5 "
        f"output-stddevs={rng.choice(['true', 'false'])}",
        random_output_indexes(rng, x=2),
        rng,
        missing=0.3,
    )
    x = made.random_x(rng)
    x[:, 0] = rng.integers(1, 5, len(x))

    assert_rows(made, x, made.propagated(x).y, naive_pooling)


def naive_distribution(c: Any, given: Rows, n: int, t: int, x: int) -> Array:
    """Returns a row of DistributeComponent."""
    blocks = c.input_dim // c.output_dim
    start = x % blocks * c.output_dim
    return given[n, t, x // blocks][start : start + c.output_dim]


def test_distribute() -> None:
    """Each row is a block of columns of the row for its x; blocks can be unused."""
    rng = np.random.default_rng(0)
    outputs = random_output_indexes(rng, x=8)
    made = setting("type=DistributeComponent input-dim=6 output-dim=2", outputs, rng)
    x = made.random_x(rng)

    assert_rows(made, x, made.propagated(x).y, naive_distribution)


@pytest.mark.parametrize("period", [0, 3])
def test_masks_of_sequences(period: int) -> None:
    """The rows of one n and one period share a mask, and so do their blocks."""
    rng = np.random.default_rng(0)
    made = setting(
        f"type=GeneralDropoutComponent dim=12 block-dim=6 continuous=true time-period={period}",
        random_output_indexes(rng, x=2),
        rng,
    )
    y = made.propagated(np.ones((len(made.input_indexes), 12))).y
    masks = defaultdict(set)
    for (n, t, _), row in rows_of(made.output_indexes, y).items():
        masks[n, t // period if period else 0] |= {tuple(row[:6]), tuple(row[6:])}

    assert len(masks) > 1
    assert all(len(found) == 1 for found in masks.values())
    assert len(set.union(*masks.values())) == len(masks)


@pytest.mark.parametrize("order", ["zyx", "yzx"])
def test_convolution_of_images(order: str) -> None:
    """Each value is a sum over the filter's x, y and z, at the filter's place."""
    rng = np.random.default_rng(0)
    made = setting(
        "type=ConvolutionComponent input-x-dim=5 input-y-dim=4 input-z-dim=2 filt-x-dim=3 "
        "filt-y-dim=2 filt-x-step=2 filt-y-step=1 num-filters=3 "
        f"input-vectorization-order={order}",
        np.array([[0, 0, 0], [1, 0, 0]], np.int32),
        rng,
    )

    def naive(c: Any, given: Rows, n: int, t: int, x: int) -> list[float]:
        row = []
        for place_x in range(2):
            for place_y in range(3):
                for number, filter_row in enumerate(c.filter_params):
                    total, weights = float(c.bias_params[number]), iter(filter_row)
                    for i in range(place_x * 2, place_x * 2 + 3):
                        for j in range(place_y, place_y + 2):
                            for z in range(2):
                                column = (
                                    (i * 4 + j) * 2 + z if order == "zyx" else (i * 2 + z) * 4 + j
                                )
                                total += float(next(weights)) * given[n, t, x][column]
                    row.append(total)
        return row

    x = made.random_x(rng)
    assert_rows(made, x, made.propagated(x).y, naive)


def test_maxpooling() -> None:
    """Each value is the largest of a block; all equal ones get the derivative."""
    made = setting(
        "type=MaxpoolingComponent input-x-dim=1 input-y-dim=3 input-z-dim=2 pool-x-size=1 "
        "pool-y-size=2 pool-z-size=1 pool-x-step=1 pool-y-step=1 pool-z-step=1",
        np.array([[0, 0, 0]], np.int32),
        np.random.default_rng(0),
    )
    run = made.backpropagated(np.array([[1.0, 9, 4, 2, 4, 3]]), np.array([[1.0, 10, 100, 1000]]))

    assert run.y.tolist() == [[4, 9, 4, 3]]
    assert run.dx.tolist() == [[0, 10, 101, 0, 100, 1000]]
