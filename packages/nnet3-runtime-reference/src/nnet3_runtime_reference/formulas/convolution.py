"""Convolutions over time, height and the axes of images; picked rows; pooling.

V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", 2016.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from nnet3_descriptors import components
from numpy.typing import NDArray

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula


def rows_at(call: Call, k: int) -> NDArray[np.intp]:
    """Returns the input row that each output row sees at the k-th time offset, (rows_out,).

    Output row i sees the input row i * row_stride + row_offsets[k].
    """
    rows = np.arange(call.rows_out) * call.indexes.row_stride + call.indexes.row_offsets[k]
    return np.asarray(rows, dtype=np.intp)


@formula(components.TdnnComponent)
class Tdnn(Formula):
    """y(t) = sum over k of W_k x(t + time offset k) + b.

    linear_params has the W_k side by side, each (output_dim, input_dim); b is bias_params, which
    may be missing.

    V. Peddinti, D. Povey, S. Khudanpur, "A time delay neural network architecture for efficient
    modeling of long temporal contexts", Interspeech 2015.
    """

    def _blocks(self, call: Call) -> list[Array]:
        """Returns the W_k."""
        count = len(call.component.time_offsets)
        return np.split(call.parameter("linear_params"), count, axis=1)

    def forward(self, call: Call) -> Array:
        """Returns y; the bias only if there is one."""
        y = call.zeros_out()
        for k, w in enumerate(self._blocks(call)):
            y += call.x[rows_at(call, k)] @ w.T
        bias = call.parameter("bias_params")
        return y + bias if bias.size else y

    def backward(self, call: Call) -> Array:
        """dx(t + time offset k) = sum over k of W_k^T dy(t)."""
        dx = call.zeros_in()
        for k, w in enumerate(self._blocks(call)):
            dx[rows_at(call, k)] += call.dy @ w  # one offset names no row twice
        return dx

    def gradient(self, call: Call) -> dict[str, Array]:
        """dW_k = sum over t of dy(t) x(t + time offset k)^T; db = sum over t of dy(t)."""
        offsets = range(len(call.component.time_offsets))
        linear = [call.dy.T @ call.x[rows_at(call, k)] for k in offsets]
        gradient: dict[str, Array] = {"linear_params": np.concatenate(linear, axis=1)}
        if call.component.bias_params.size:
            gradient["bias_params"] = call.dy.sum(axis=0)
        return gradient


@formula(components.DistributeComponent)
class Distribute(Formula):
    """y(i) = block source_blocks[i] of x, where the blocks are counted along its rows.

    A row of x is input_dim / output_dim blocks of output_dim columns.
    """

    def forward(self, call: Call) -> Array:
        """Returns the blocks."""
        blocks = call.x.reshape(-1, call.component.output_dim)
        y: Array = blocks[call.indexes.source_blocks]
        return y

    def backward(self, call: Call) -> Array:
        """dx has each row of dy in the place of its block; other blocks are 0."""
        dx = call.zeros_in()
        blocks = dx.reshape(-1, call.component.output_dim)  # a view
        for row, block in enumerate(call.indexes.source_blocks):
            blocks[block] += call.dy[row]
        return dx


Term = tuple[int, int, int, NDArray[np.intp]]
"""Number of the offset, height in y, height in x, and for each row of y the row of x."""


@formula(components.TimeHeightConvolutionComponent)
class TimeHeightConvolution(Formula):
    """y(t, h) = b + sum over k of W_k x(t + time offset k, s h + height offset k).

    x(t, h) are the num_filters_in columns of height h in the row of time t. Heights outside of x
    count as 0; rows that stand for times without input are 0. s is height_subsample_out, b is
    bias_params, and linear_params has the W_k side by side, each (num_filters_out, num_filters_in).
    """

    def _x(self, call: Call, values: Array) -> Array:
        c = call.component
        return values.reshape(call.rows_in, c.height_in, c.num_filters_in)

    def _y(self, call: Call, values: Array) -> Array:
        c = call.component
        return values.reshape(call.rows_out, c.height_out, c.num_filters_out)

    def _weights(self, call: Call) -> list[Array]:
        """Returns the W_k."""
        return np.split(call.parameter("linear_params"), len(call.component.offsets), axis=1)

    def _terms(self, call: Call) -> Iterator[Term]:
        """Yields the terms of the sums that lie inside x, for all times together."""
        c = call.component
        for k, (time, height) in enumerate(c.offsets):
            rows = rows_at(call, c.time_offsets.index(time))
            for h in range(c.height_out):
                height_in = c.height_subsample_out * h + height
                if 0 <= height_in < c.height_in:
                    yield k, h, height_in, rows

    def forward(self, call: Call) -> Array:
        """Returns y, bias included."""
        c, x, w = call.component, self._x(call, call.x), self._weights(call)
        y = np.zeros((call.rows_out, c.height_out, c.num_filters_out), call.dtype)
        y += call.parameter("bias_params")
        for k, h, height_in, rows in self._terms(call):
            y[:, h] += x[rows, height_in] @ w[k].T
        return y.reshape(call.rows_out, -1)

    def backward(self, call: Call) -> Array:
        """dx(t + time offset k, s h + height offset k) = sum of W_k^T dy(t, h)."""
        c, dy, w = call.component, self._y(call, call.dy), self._weights(call)
        dx = np.zeros((call.rows_in, c.height_in, c.num_filters_in), call.dtype)
        for k, h, height_in, rows in self._terms(call):
            dx[rows, height_in] += dy[:, h] @ w[k]  # one offset names no row twice
        return dx.reshape(call.rows_in, -1)

    def gradient(self, call: Call) -> dict[str, Array]:
        """dW_k = sum over t and h of dy(t, h) x(...)^T; db = sum over t and h of dy(t, h)."""
        x, dy = self._x(call, call.x), self._y(call, call.dy)
        dw = [np.zeros_like(w) for w in self._weights(call)]
        for k, h, height_in, rows in self._terms(call):
            dw[k] += dy[:, h].T @ x[rows, height_in]
        return {"linear_params": np.concatenate(dw, axis=1), "bias_params": dy.sum(axis=(0, 1))}


@formula(components.ConvolutionComponent)
class Convolution(Formula):
    """y(i, j) = b + sum over a, b of W(a, b) x(i step_x + a, j step_y + b), for each row.

    x(i, j) are the input_z_dim values of a row at place (i, j), y(i, j) the num_filters values;
    the columns of y run through (i, j, filter), filter fastest. filter_params has a row for each
    filter that runs through (a, b, z), z fastest.
    """

    def _image(self, call: Call, x: Array) -> Array:
        """Returns rows of x as (rows, input_x_dim, input_y_dim, input_z_dim); a view."""
        c = call.component
        if c.input_vectorization == "zyx":  # z fastest
            return x.reshape(-1, c.input_x_dim, c.input_y_dim, c.input_z_dim)
        return x.reshape(-1, c.input_x_dim, c.input_z_dim, c.input_y_dim).swapaxes(2, 3)

    def _output_size(self, call: Call) -> tuple[int, int]:
        """Returns the number of places along x and along y."""
        c = call.component
        return (
            (c.input_x_dim - c.filt_x_dim) // c.filt_x_step + 1,
            (c.input_y_dim - c.filt_y_dim) // c.filt_y_step + 1,
        )

    def _filters(self, call: Call) -> Array:
        """Returns W as (num_filters, filt_x_dim, filt_y_dim, input_z_dim)."""
        c = call.component
        return call.parameter("filter_params").reshape(
            -1, c.filt_x_dim, c.filt_y_dim, c.input_z_dim
        )

    def _terms(self, call: Call) -> Iterator[tuple[int, int, Any]]:
        """Yields a, b, and the index of their elements in an image, for all (i, j) together."""
        c = call.component
        size_x, size_y = self._output_size(call)
        i, j = np.arange(size_x)[:, None], np.arange(size_y)[None, :]
        for a in range(c.filt_x_dim):
            for b in range(c.filt_y_dim):
                yield a, b, np.s_[:, i * c.filt_x_step + a, j * c.filt_y_step + b]

    def _dy(self, call: Call) -> Array:
        return call.dy.reshape(-1, *self._output_size(call), call.component.num_filters)

    def forward(self, call: Call) -> Array:
        """Returns y, bias included."""
        image, w = self._image(call, call.x), self._filters(call)
        y = np.zeros((call.rows_out, *self._output_size(call), len(w)), call.dtype)
        y += call.parameter("bias_params")
        for a, b, window in self._terms(call):
            y += image[window] @ w[:, a, b].T
        return y.reshape(call.rows_out, -1)

    def backward(self, call: Call) -> Array:
        """dx(i step_x + a, j step_y + b) = sum of W(a, b)^T dy(i, j)."""
        w, dy = self._filters(call), self._dy(call)
        dx = call.zeros_in()
        image = self._image(call, dx)
        for a, b, window in self._terms(call):
            image[window] += dy @ w[:, a, b]  # one (a, b) names no place twice
        return dx

    def gradient(self, call: Call) -> dict[str, Array]:
        """dW(a, b) = sum over rows, i, j of dy(i, j) x(...)^T; db = sum of dy(i, j)."""
        image, dy = self._image(call, call.x), self._dy(call)
        dw = np.zeros_like(self._filters(call))
        for a, b, window in self._terms(call):
            dw[:, a, b] = np.einsum("nijf,nijz->fz", dy, image[window])
        return {
            "filter_params": dw.reshape(len(dw), -1),
            "bias_params": dy.sum(axis=(0, 1, 2)),
        }


@formula(components.MaxpoolingComponent)
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


@formula(components.StatisticsExtractionComponent)
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


@formula(components.StatisticsPoolingComponent)
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
