"""Functions of several times: attention, and statistics over a window."""

import itertools

import numpy as np
from nnet3_descriptors.components import (
    RestrictedAttentionComponent,
    StatisticsExtractionComponent,
    StatisticsPoolingComponent,
)

from nnet3_runtime_onnx.components.declaration import Array, Call, translates
from nnet3_runtime_onnx.graph import Tensor, concat
from nnet3_runtime_onnx.matrices import Region, sums_of_ranges


@translates(RestrictedAttentionComponent)
def restricted_attention(call: Call) -> Tensor:
    """y(t) = sum over j of c_j(t) v(t + s j); c = softmax over j of a q(t) . k(t + s j) + b_j(t).

    For each head the columns of the input are key k, value v, query q and biases b.
    """
    c, rows = call.component, call.rows_out
    ends = list(itertools.accumulate((c.key_dim, c.value_dim, c.key_dim, c.context_dim), initial=0))
    keys, values, queries, biases = itertools.pairwise(ends)
    window = np.stack([call.rows_at(j) for j in range(c.context_dim)], axis=1).reshape(-1)
    here = call.rows_at(c.num_left_inputs)

    def heads(numbers: Array, columns: tuple[int, int], per_row: int) -> Tensor:
        """(rows, heads, per_row, columns of each head)."""
        x = call.matrices.tensor(call.region.take(numbers)).reshape(
            rows, per_row, c.num_heads, ends[-1]
        )
        return x.slice(range(*columns)).transpose(0, 2, 1, 3)

    logits = heads(here, queries, 1) @ heads(window, keys, c.context_dim).transpose(0, 1, 3, 2)
    logits = logits * float(c.key_scale) + heads(here, biases, 1)
    weights = logits.apply("Softmax", axis=-1)
    y = weights @ heads(window, values, c.context_dim)
    if c.output_context:
        y = concat([y, weights], axis=-1)
    return y.reshape(rows, c.output_dim)


@translates(StatisticsExtractionComponent)
def statistics_extraction(call: Call) -> Region:
    """y = (n, sum of x, sum of x^2) over the n rows of a period; x^2 with include_variance only."""
    ranges = np.asarray(call.indexes.forward_indexes)
    counts = call.matrices.region_of(call.numbers(ranges[:, 1] - ranges[:, 0]))
    parts = [counts, sums_of_ranges(call.matrices, call.region, ranges)]
    if call.component.include_variance:
        squares = call.matrices.region_of(call.x * call.x)
        parts.append(sums_of_ranges(call.matrices, squares, ranges))
    return Region.side_by_side(parts)


@translates(StatisticsPoolingComponent)
def statistics_pooling(call: Call) -> Region:
    """y = (log n, m, sqrt(max(q - m^2, floor))): the mean m and the standard deviation in a window.

    x has a count, sums and sums of squares. Without output_stddevs, y is log n and all columns of x
    after the count, divided by n.
    """
    c = call.component
    ranges = np.asarray(call.indexes.forward_indexes)
    sums = sums_of_ranges(call.matrices, call.region, ranges)
    columns = call.region.columns
    n = call.matrices.tensor(sums.between(0, 1))

    def mean(begin: int, end: int) -> Tensor:
        return call.matrices.tensor(sums.between(begin, end)) / n

    counts = [n.apply("Log")] * c.num_log_count_features
    if not c.output_stddevs:
        return call.side_by_side(*counts, mean(1, columns))
    middle = (columns + 1) // 2
    m, q = mean(1, middle), mean(middle, columns)
    variance = (q - m * m).maximum(float(c.variance_floor))
    return call.side_by_side(*counts, m, variance.apply("Sqrt"))
