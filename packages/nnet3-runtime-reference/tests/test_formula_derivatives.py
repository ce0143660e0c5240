"""Formulas of types that look at indexes, or at several rows or columns at once.

Values are compared with loops over single values, which find rows only by (n, t, x); derivatives
with central finite differences.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import attrs
import numpy as np
import pytest
from formula_calls import (
    NO_TIME,
    Array,
    SameDraws,
    Setting,
    assert_gradient,
    assert_input_derivative,
    random_output_indexes,
    setting,
)

Rows = dict[tuple[int, int, int], Array]
"""The values of rows by n, t and x, without missing times."""


def rows_of(indexes: Array, values: Array) -> Rows:
    """Returns the values of rows by their indexes, without padding."""
    pairs = zip(indexes.tolist(), values, strict=True)
    return {(n, t, x): row for (n, t, x), row in pairs if t != NO_TIME}


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


def naive_distribution(c: Any, given: Rows, n: int, t: int, x: int) -> Array:
    """Returns a row of DistributeComponent."""
    blocks = c.input_dim // c.output_dim
    start = x % blocks * c.output_dim
    return given[n, t, x // blocks][start : start + c.output_dim]


def naive_image(c: Any, given: Rows, n: int, t: int, x: int) -> list[float]:
    """Returns a row of ConvolutionComponent, whose filter sees 3 x 2 of 5 x 4 places."""
    row = []
    for place_x in range(2):
        for place_y in range(3):
            for number, filter_row in enumerate(c.filter_params):
                total, weights = float(c.bias_params[number]), iter(filter_row)
                for i in range(place_x * 2, place_x * 2 + 3):
                    for j in range(place_y, place_y + 2):
                        for z in range(2):
                            column = (
                                (i * 4 + j) * 2 + z
                                if c.input_vectorization == "zyx"
                                else (i * 2 + z) * 4 + j
                            )
                            total += float(next(weights)) * given[n, t, x][column]
                row.append(total)
    return row


class Case(NamedTuple):
    """A component and its rows.

    Attributes:
        options: The type without "Component", and its options.
        naive: A row of the output by plain loops, where there is such a function.
        step: The distance of the times of the outputs.
        missing: The probability that an input is missing.
        xs: The number of values of x.
    """

    options: str
    naive: Callable[..., Any] | None = None
    step: int = 1
    missing: float = 0.0
    xs: int = 2

    def setting(self, rng: np.random.Generator) -> Setting:
        """The component with random parameters and rows."""
        kind, _, options = self.options.partition(" ")
        outputs = random_output_indexes(rng, step=self.step, x=self.xs)
        return setting(f"type={kind}Component {options}", outputs, rng, missing=self.missing)


HEIGHTS = "TimeHeightConvolution num-filters-in=2 num-filters-out=3 height-in=5 bias-stddev=1"
ATTENTION = (
    "RestrictedAttention num-heads=2 key-dim=2 value-dim=3 num-left-inputs=2 num-right-inputs=1 "
    "num-left-inputs-required=0 num-right-inputs-required=0"
)
EXTRACTION = "StatisticsExtraction input-dim=2 input-period=2 output-period=6 include-variance"
POOLING = "StatisticsPooling input-dim=5 variance-floor=0.5"
IMAGES = (
    "Convolution input-x-dim=5 input-y-dim=4 input-z-dim=2 filt-x-dim=3 filt-y-dim=2 "
    "filt-x-step=2 filt-y-step=1 num-filters=3 input-vectorization-order"
)

CASES = {
    "tdnn": Case(
        "Tdnn input-dim=2 output-dim=3 time-offsets=3,-1,0 bias-stddev=1", naive_tdnn, step=2
    ),
    "tdnn without bias": Case(
        "Tdnn input-dim=3 output-dim=1 time-offsets=-4,2 use-bias=false", naive_tdnn, step=3
    ),
    "tdnn of one offset": Case("Tdnn input-dim=1 output-dim=4 time-offsets=1", naive_tdnn),
    **{
        f"convolution {stride} {subsampling} {step}": Case(
            f"{HEIGHTS} height-out={4 // subsampling + 1} height-subsample-out={subsampling} "
            f"offsets=-{stride},-1;-{stride},0;0,0;0,1;{2 * stride},-1 required-time-offsets=0",
            naive_convolution,
            step,
            missing=0.3,
        )
        for stride, subsampling, step in ((1, 1, 1), (3, 2, 2), (2, 1, 3))
    },
    "convolution of required times": Case(
        f"{HEIGHTS} height-out=5 time-offsets=-2,0,2 height-offsets=-1,0,1 "
        "required-time-offsets=0,2",
        naive_convolution,
        step=2,
        missing=0.2,
    ),
    **{
        f"attention {stride} {context} {step}": Case(
            f"{ATTENTION} time-stride={stride} output-context={context}",
            naive_attention,
            step,
            missing=0.2,
        )
        for stride, context, step in ((1, "true", 1), (2, "false", 3), (2, "true", 2))
    },
    "attention to required times": Case(
        "RestrictedAttention key-dim=1 value-dim=1 num-left-inputs=1 num-right-inputs=0 "
        "output-context=false",
        naive_attention,
        missing=0.1,
    ),
    **{
        f"extraction {flag}": Case(f"{EXTRACTION}={flag}", naive_extraction, 6, missing=0.3)
        for flag in ("true", "false")
    },
    "pooling": Case(
        f"{POOLING} left-context=2 right-context=3 output-stddevs=true num-log-count-features=2",
        naive_pooling,
        missing=0.3,
    ),
    "pooling of sums": Case(
        f"{POOLING} left-context=0 right-context=4 input-period=2", naive_pooling, 2, missing=0.3
    ),
    "distribution": Case("Distribute input-dim=6 output-dim=2", naive_distribution, xs=8),
    "distribution of one block": Case("Distribute input-dim=2 output-dim=2", naive_distribution),
    **{f"images {order}": Case(f"{IMAGES}={order}", naive_image) for order in ("zyx", "yzx")},
    "maxpooling": Case(
        "Maxpooling input-x-dim=3 input-y-dim=4 input-z-dim=2 pool-x-size=2 pool-y-size=3 "
        "pool-z-size=1 pool-x-step=1 pool-y-step=1 pool-z-step=1"
    ),
    "lstm": Case("LstmNonlinearity cell-dim=2 self-repair-scale=0"),
    "lstm with masks": Case("LstmNonlinearity cell-dim=2 use-dropout=true self-repair-scale=0"),
    "gru": Case("GruNonlinearity cell-dim=3"),
    "projected gru": Case("GruNonlinearity cell-dim=4 recurrent-dim=2"),
    "output gru": Case("OutputGruNonlinearity cell-dim=3"),
    "dropout": Case("GeneralDropout dim=6 block-dim=3 time-period=2"),
    "continuous dropout": Case("GeneralDropout dim=4 continuous=true"),
    "bands": Case("GeneralDropout dim=12 block-dim=6 specaugment-max-proportion=0.7"),
    "time mask": Case("SpecAugmentTimeMask dim=3 time-mask-max-frames=2"),
}


def drawn(name: str, seed: int) -> tuple[Setting, Array, np.random.Generator]:
    """A case, its input, and a source of further numbers; pooling needs counts and variances."""
    rng = np.random.default_rng([seed, *name.encode()])
    made = CASES[name].setting(rng)
    x = made.random_x(rng)
    if name.startswith("pooling"):
        count, mean = rng.integers(1, 5, size=(len(x), 1)), x[:, 1:3]
        square = mean**2 + rng.random(mean.shape) + 0.1
        x = np.concatenate([count, count * mean, count * square], axis=1)
    return made, x, rng


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.naive])
def test_values(name: str, seed: int) -> None:
    """Each row of the output is that of loops over single values; padding does not count."""
    made, x, _ = drawn(name, seed)
    given, naive = rows_of(made.input_indexes, x), CASES[name].naive
    assert naive is not None

    found = rows_of(made.output_indexes, made.propagated(x).y)

    assert found
    for index, row in found.items():
        np.testing.assert_allclose(row, naive(made.component, given, *index), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CASES)
def test_derivatives(name: str, seed: int) -> None:
    """The input derivative and the gradient are those of the forward formula."""
    made, x, rng = drawn(name, seed)
    constant: tuple[int, ...] = ()  # counts and masks
    if name.startswith("pooling"):
        constant = (0,)
    elif name == "lstm with masks":
        constant = tuple(range(x.shape[1] - 3, x.shape[1]))

    dy = made.random_dy(rng)
    assert_input_derivative(made, x, dy, rng, constant)
    assert_gradient(made, x, dy, rng)


@pytest.mark.parametrize("name", CASES)
def test_single_precision(name: str) -> None:
    """With float32, all arithmetic is in float32, and near to that in float64."""
    made, x, rng = drawn(name, 0)
    made, dy = attrs.evolve(made, draws=SameDraws(decision=True)), made.random_dy(rng)

    expected = made.backpropagated(x, dy)
    found = attrs.evolve(made, dtype=np.dtype(np.float32)).backpropagated(x, dy)
    for array, other in (
        (found.y, expected.y),
        (found.dx, expected.dx),
        *((found.gradient[key], expected.gradient[key]) for key in expected.gradient),
    ):
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, other, rtol=1e-3, atol=1e-4)


def is_missing(made: Setting) -> bool:
    """Whether an input of an output row is missing."""
    given = rows_of(made.input_indexes, made.input_indexes)
    outputs = rows_of(made.output_indexes, made.output_indexes)
    needed = itertools.product(outputs, made.component.time_offsets)
    return any((n, t + offset, x) not in given for (n, t, x), offset in needed)


def test_inputs_are_missing() -> None:
    """The cases with optional inputs have outputs that lack some."""
    for name, case in CASES.items():
        if case.naive in (naive_convolution, naive_attention) and "required times" not in name:
            assert any(is_missing(drawn(name, seed)[0]) for seed in range(4)), name


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
