"""Pooling: the greatest value of blocks of a row, and statistics over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from nnet3_descriptors.components import (
    MaxpoolingComponent,
    StatisticsExtractionComponent,
    StatisticsPoolingComponent,
)

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula


@formula(MaxpoolingComponent)
class Maxpooling(Formula):
    """y(i, j, k) = the greatest x(i step_x + a, j step_y + b, k step_z + c), for each row.

    a, b and c run through a block of pool_x_size times pool_y_size times pool_z_size. Columns of x
    and y run through the three axes x, y and z, the last one fastest.

    K. Jarrett et al., "What is the best multi-stage architecture for object recognition?", ICCV
    2009.
    """

    def _sizes(self, call: Call) -> tuple[tuple[int, int, int], ...]:
        """Returns size of the input, size of a block and step for each axis."""
        c = call.component
        return (
            (c.input_x_dim, c.pool_x_size, c.pool_x_step),
            (c.input_y_dim, c.pool_y_size, c.pool_y_step),
            (c.input_z_dim, c.pool_z_size, c.pool_z_step),
        )

    def _input_shape(self, call: Call) -> tuple[int, ...]:
        return (-1, *(size for size, _, _ in self._sizes(call)))

    def _output_shape(self, call: Call) -> tuple[int, ...]:
        return (-1, *((size - pool) // step + 1 for size, pool, step in self._sizes(call)))

    def _places(self, call: Call) -> Iterator[Any]:
        """Yields for each place in a block the index of its elements in all blocks."""
        _, *counts = self._output_shape(call)
        sizes = self._sizes(call)
        for place in np.ndindex(*(pool for _, pool, _ in sizes)):
            axes = (
                np.arange(count) * step + offset
                for count, (_, _, step), offset in zip(counts, sizes, place, strict=True)
            )
            yield (slice(None), *np.ix_(*axes))

    def forward(self, call: Call) -> Array:
        """Returns the greatest values."""
        x = call.x.reshape(self._input_shape(call))
        y: Array = np.max([x[place] for place in self._places(call)], axis=0)
        return y.reshape(call.rows_out, -1)

    def backward(self, call: Call) -> Array:
        """dx = sum of dy over the blocks in which x is the greatest value, or equal to it."""
        x = call.x.reshape(self._input_shape(call))
        y, dy = (values.reshape(self._output_shape(call)) for values in (call.y, call.dy))
        dx = np.zeros_like(x)
        for place in self._places(call):
            dx[place] += dy * (x[place] == y)
        return dx.reshape(call.rows_in, -1)


@formula(StatisticsExtractionComponent)
class StatisticsExtraction(Formula):
    """y = (n, sum of x, sum of x^2) over the n rows of a period; no x^2 without include_variance.

    D. Snyder et al., "Deep neural network embeddings for text-independent speaker verification",
    Interspeech 2017.
    """

    def forward(self, call: Call) -> Array:
        """Returns counts and sums."""
        y = call.zeros_out()
        for row, (begin, end) in enumerate(call.indexes.forward_indexes):
            x = call.x[begin:end]
            sums = [[end - begin], x.sum(axis=0)]
            if call.component.include_variance:
                sums.append((x**2).sum(axis=0))
            y[row] = np.concatenate(sums)
        return y

    def backward(self, call: Call) -> Array:
        """dx = d(sum of x) + 2 x d(sum of x^2), of the period that the row is in."""
        dim = call.component.input_dim
        dy = call.dy[call.indexes.backward_indexes]
        dx: Array = dy[:, 1 : 1 + dim].copy()
        if call.component.include_variance:
            dx += 2.0 * call.x * dy[:, 1 + dim :]
        return dx


@formula(StatisticsPoolingComponent)
class StatisticsPooling(Formula):
    """y = (log n, m, sqrt(max(q - m^2, floor))): the mean m and the standard deviation in a window.

    x has a count, sums and sums of squares, as StatisticsExtractionComponent gives them. Over the
    rows of x in the window, n is the sum of the counts, m the sum of the sums divided by n, and q
    the sum of the sums of squares divided by n. y has num_log_count_features columns with log n.
    Without output_stddevs, y is log n and all columns of x after the count, divided by n.

    D. Snyder et al., "Deep neural network embeddings for text-independent speaker verification",
    Interspeech 2017.
    """

    def _counts(self, call: Call) -> Array:
        """Returns n for each row of y, (rows_out, 1)."""
        return np.array(
            [[call.x[begin:end, 0].sum()] for begin, end in call.indexes.forward_indexes],
            call.dtype,
        )

    def forward(self, call: Call) -> Array:
        """Returns logarithms of the counts, means and standard deviations."""
        c, n = call.component, self._counts(call)
        sums = [call.x[begin:end, 1:].sum(axis=0) for begin, end in call.indexes.forward_indexes]
        means = np.array(sums, call.dtype) / n
        if c.output_stddevs:
            m, q = np.split(means, 2, axis=1)
            means = np.concatenate([m, np.sqrt(np.maximum(q - m**2, c.variance_floor))], axis=1)
        return np.concatenate(
            [np.repeat(np.log(n), c.num_log_count_features, axis=1), means], axis=1
        )

    def backward(self, call: Call) -> Array:
        """dx = the sum of (0, dm / n, dq / n) over the windows that the row is in.

        With standard deviations s, dq = ds / 2 s, and dm has in addition -2 m dq. The derivative
        ignores the floor of variances, and treats the count as a constant.
        """
        c = call.component
        skipped = c.num_log_count_features
        # This only uses operands that the component's properties promise.
        n = np.exp(call.y[:, :1]) if skipped else self._counts(call)
        derivatives = call.dy[:, skipped:]
        if c.output_stddevs:
            dm, ds = np.split(derivatives, 2, axis=1)
            m, s = np.split(call.y[:, skipped:], 2, axis=1)
            dq = ds / (2.0 * s)
            derivatives = np.concatenate([dm - 2.0 * m * dq, dq], axis=1)
        derivatives = derivatives / n
        dx = call.zeros_in()
        for row, (begin, end) in enumerate(call.indexes.backward_indexes):
            dx[row, 1:] = derivatives[begin:end].sum(axis=0)
        return dx
