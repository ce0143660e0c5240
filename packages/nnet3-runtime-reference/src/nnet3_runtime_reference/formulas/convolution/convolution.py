"""Convolutions: over time and height, and over the two axes of images that are rows.

V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", 2016.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from nnet3_descriptors.components import ConvolutionComponent, TimeHeightConvolutionComponent
from numpy.typing import NDArray

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas.convolution.splicing import rows_at
from nnet3_runtime_reference.formulas.formula import Call, Formula, formula

Term = tuple[int, int, int, NDArray[np.intp]]
"""Number of the offset, height in y, height in x, and for each row of y the row of x."""


@formula(TimeHeightConvolutionComponent)
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


@formula(ConvolutionComponent)
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
