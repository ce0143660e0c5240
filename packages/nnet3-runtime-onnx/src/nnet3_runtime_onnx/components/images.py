"""Convolutions and pooling: rows, or all rows together, are images."""

import math

import numpy as np
from nnet3_descriptors.components import (
    ConvolutionComponent,
    MaxpoolingComponent,
    TimeHeightConvolutionComponent,
)

from nnet3_runtime_onnx.components.declaration import Array, Call, translates
from nnet3_runtime_onnx.graph import Tensor
from nnet3_runtime_onnx.matrices import Region


@translates(TimeHeightConvolutionComponent)
def time_height_convolution(call: Call) -> Tensor:
    """y(t, h) = b + sum over k of W_k x(t + time offset k, s h + height offset k).

    Rows are the first axis of an image and heights the second: a filter sees rows that are equally
    far from each other, as times are. Where offsets leave gaps, the filter is 0. Rows of zeros
    before the first and behind the last become padding.
    """
    c = call.component
    first, gap, taps = _progression(call.indexes.row_offsets)
    stride = int(call.indexes.row_stride)
    lowest = min(0, *(height for _, height in c.offsets))
    heights = max(height for _, height in c.offsets) - lowest + 1

    def filters() -> Array:
        w = np.zeros((c.num_filters_out, c.num_filters_in, taps, heights), np.float32)
        parts = np.split(c.linear_params, len(c.offsets), axis=1)
        for (time, height), part in zip(c.offsets, parts, strict=True):
            row = int(call.indexes.row_offsets[c.time_offsets.index(time)])
            w[:, :, (row - first) // gap, height - lowest] = part
        return w

    rows = gap * (taps - 1) + stride * (call.rows_out - 1) + 1
    given, (before, behind) = _without_zeros_around(
        call.region.take(np.arange(first, first + rows))
    )
    x = call.matrices.tensor(given)
    image = x.image
    if image is None or image.shape[1:] != (c.num_filters_in, given.rows, c.height_in):
        image = x.as_image(given.rows, c.height_in, c.num_filters_in).transpose(0, 3, 1, 2)
    below = c.height_subsample_out * (c.height_out - 1) + lowest + heights - c.height_in
    y = image.convolve(
        call.derived(f"filters.{first}.{gap}.{taps}", filters),
        call.parameter("bias_params"),
        strides=(stride, c.height_subsample_out),
        dilations=(gap, 1),
        pads=(before, -lowest, behind, max(below, 0)),
    )
    return y.slice(range(c.height_out)).as_rows_of_image(call.rows_out, c.output_dim)


def _without_zeros_around(region: Region) -> tuple[Region, tuple[int, int]]:
    """Returns the rows between the first and the last that is not zero, and how many are not.

    Returns:
        The rows, all if there are only zeros; how many are before them, and how many behind.
    """
    rows = np.flatnonzero(~region.is_zero)
    if not len(rows):
        return region, (0, 0)
    first, last = int(rows[0]), int(rows[-1])
    return region.take(np.arange(first, last + 1)), (first, region.rows - 1 - last)


def _progression(offsets: Array) -> tuple[int, int, int]:
    """Returns the first of some numbers, the distance of a progression with all, and its length."""
    numbers = sorted(set(np.asarray(offsets).tolist()))
    first = numbers[0]
    gap = math.gcd(*(number - first for number in numbers)) or 1
    return first, gap, (numbers[-1] - first) // gap + 1


@translates(ConvolutionComponent)
def convolution(call: Call) -> Tensor:
    """y(i, j) = b + sum over a, b of W(a, b) x(i step_x + a, j step_y + b), for each row."""
    c = call.component
    if c.input_vectorization == "zyx":  # z fastest
        x = call.x.as_images(c.input_x_dim, c.input_y_dim, c.input_z_dim).transpose(0, 3, 1, 2)
    else:
        x = call.x.as_images(c.input_x_dim, c.input_z_dim, c.input_y_dim).transpose(0, 2, 1, 3)

    def filters() -> Array:
        shape = (-1, c.filt_x_dim, c.filt_y_dim, c.input_z_dim)
        w: Array = c.filter_params.reshape(shape).transpose(0, 3, 1, 2)
        return w

    y = x.convolve(
        call.derived("filters", filters),
        call.parameter("bias_params"),
        strides=(c.filt_x_step, c.filt_y_step),
    )
    return y.transpose(0, 2, 3, 1).as_rows(call.rows_out, c.output_dim)


@translates(MaxpoolingComponent)
def maxpooling(call: Call) -> Tensor:
    """y(i, j, k) = the greatest x(i step_x + a, j step_y + b, k step_z + c), for each row."""
    c = call.component
    x = call.x.as_images(1, c.input_x_dim, c.input_y_dim, c.input_z_dim)
    y = x.pool_max(
        sizes=(c.pool_x_size, c.pool_y_size, c.pool_z_size),
        strides=(c.pool_x_step, c.pool_y_step, c.pool_z_step),
    )
    return y.as_rows(call.rows_out, c.output_dim)
