"""Functions of all columns of a row: softmax, normalization."""

import numpy as np
from nnet3_descriptors.components import (
    BatchNormComponent,
    LogSoftmaxComponent,
    NormalizeComponent,
    SoftmaxComponent,
)

from nnet3_runtime_onnx.components.declaration import Call, translates
from nnet3_runtime_onnx.graph import Tensor, concat

LEAST_SOFTMAX = 1e-20
LEAST_SQUARE = 2.0**-66
"""The least value of the mean square of a row, relative to the mean square of the target."""

_LARGEST = float(np.finfo(np.float32).max)


@translates(SoftmaxComponent)
def softmax(call: Call) -> Tensor:
    """y = exp(x) / sum(exp(x)), over the columns of each row, at least 1e-20."""
    return call.x.apply("Softmax", axis=-1).maximum(LEAST_SOFTMAX)


@translates(LogSoftmaxComponent)
def log_softmax(call: Call) -> Tensor:
    """y = x - log(sum(exp(x))), over the columns of each row."""
    return call.x.apply("LogSoftmax", axis=-1)


@translates(NormalizeComponent)
def normalize(call: Call) -> Tensor:
    """y = x / r with r = sqrt(x . x / (D target_rms^2)), for each row and block of D columns.

    With add_log_stddev each block has one more column, log(target_rms r).
    """
    c, rows = call.component, call.rows_out
    x = call.x.reshape(rows, call.region.columns // c.block_dim, c.block_dim)
    factor = min(1.0 / float(c.block_dim * c.target_rms**2), _LARGEST)
    square = (x * x).reduce("ReduceSum", -1, keep=True) * factor
    square = square.maximum(LEAST_SQUARE)
    y = x / square.apply("Sqrt")
    if c.add_log_stddev:
        y = concat([y, square.apply("Log") * 0.5 + float(np.log(c.target_rms))], axis=-1)
    return y.reshape(rows, c.output_dim)


@translates(BatchNormComponent)
def batch_norm(call: Call) -> Tensor:
    """y = s (x - m) with s = target_rms / sqrt(v + epsilon), column by column.

    m and v are the stored mean and variance in test mode, else mean and variance of the rows.
    Columns at the same place of each block of block_dim share them.
    """
    c = call.component
    columns, blocks = call.region.columns, call.region.columns // c.block_dim
    if c.test_mode:
        image = call.x.image
        if image is not None and image.shape[1] == c.block_dim:
            return _normalized_image(call, image)
        y = call.x * call.derived("scale", lambda: np.tile(c.scale, blocks))
        return y + call.derived("offset", lambda: np.tile(c.offset, blocks))
    x = call.x.reshape(call.region.rows * blocks, c.block_dim)
    centred = x - x.reduce("ReduceMean", -2, keep=True)
    variance = (centred * centred).reduce("ReduceMean", -2, keep=True)
    y = centred * float(c.target_rms) / (variance + float(c.epsilon)).apply("Sqrt")
    return y.reshape(call.rows_out, columns)


def _normalized_image(call: Call, image: Tensor) -> Tensor:
    """y = s (x - m) for an image; its channels are the columns of a block."""
    c = call.component
    y = image.normalize_channels(
        mean=call.parameter("stats_mean"),
        variance=call.derived("stats_var", lambda: np.maximum(c.stats_var, 0)),
        scale=call.derived("target_rms", lambda: np.full(c.block_dim, c.target_rms)),
        offset=call.derived("zeros", lambda: np.zeros(c.block_dim)),
        epsilon=float(c.epsilon),
    )
    return y.as_rows_of_image(call.rows_out, call.region.columns)
