"""Functions of the columns of a row: affine maps, scales, nonlinearities, normalization, masks.

Outside of test mode, components that draw random masks are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from nnet3_descriptors import Component, components

from nnet3_runtime_onnx import graph
from nnet3_runtime_onnx.components.declaration import Array, Call, translates
from nnet3_runtime_onnx.matrices import Region


@translates(
    components.AffineComponent,
    components.FixedAffineComponent,
    components.NaturalGradientAffineComponent,
)
def affine(call: Call) -> graph.Tensor:
    """y = x W^T + b."""
    return call.affine("linear_params", "bias_params")


@translates(components.LinearComponent)
def linear(call: Call) -> graph.Tensor:
    """y = x W^T."""
    return call.affine("params")


@translates(components.BlockAffineComponent)
def block_affine(call: Call) -> graph.Tensor:
    """y_k = x_k W_k^T + b_k for each block k of the columns."""
    count = call.component.num_blocks
    w = call.derived(
        "linear_params.blocks",
        lambda: call.component.linear_params.reshape(
            count, -1, call.region.columns // count
        ).transpose(0, 2, 1),
    )
    x = call.x.reshape(call.region.rows, count, call.region.columns // count)
    product = (x.transpose(1, 0, 2) @ w).transpose(1, 0, 2)
    y = product.reshape(call.rows_out, call.component.output_dim)
    return y + call.parameter("bias_params")


@translates(components.RepeatedAffineComponent, components.NaturalGradientRepeatedAffineComponent)
def repeated_affine(call: Call) -> graph.Tensor:
    """y_k = x_k W^T + b for each block k of the columns."""
    count = call.component.num_repeats
    x = call.x.reshape(call.region.rows, count, call.region.columns // count)
    y = x @ call.transposed("linear_params") + call.parameter("bias_params")
    return y.reshape(call.rows_out, call.component.output_dim)


@translates(components.TdnnComponent)
def tdnn(call: Call) -> graph.Tensor:
    """y(t) = sum over k of W_k x(t + time offset k) + b; the x side by side."""
    offsets = range(len(call.component.time_offsets))
    y = call.spliced([call.rows_at(k) for k in offsets]) @ call.transposed("linear_params")
    return y + call.parameter("bias_params") if call.component.bias_params.size else y


@translates(components.PnormComponent)
def pnorm(call: Call) -> graph.Tensor:
    """y_g = |x_g|, the Euclidean norm, for each group g of neighbouring columns."""
    groups = call.component.output_dim
    x = call.x.reshape(call.rows_out, groups, call.region.columns // groups)
    return (x * x).reduce("ReduceSum", -1).apply("Sqrt")


@translates(components.SumGroupComponent)
def sum_group(call: Call) -> graph.Tensor:
    """y_g = the sum of the columns of group g: a product with ones and zeros."""
    sizes = call.component.sizes

    def members() -> Array:
        return np.repeat(np.eye(len(sizes)), sizes, axis=0)

    return call.x @ call.derived("groups", members)


@translates(components.SumBlockComponent)
def sum_block(call: Call) -> graph.Tensor:
    """y = scale (x_1 + ... + x_k), for the blocks of the columns."""
    dim = call.component.output_dim
    x = call.x.reshape(call.rows_out, call.region.columns // dim, dim)
    return x.reduce("ReduceSum", -2) * float(call.component.scale)


@translates(components.PermuteComponent)
def permute(call: Call) -> graph.Tensor:
    """y_i = x_m(i) for each column i."""
    return call.x.take(np.asarray(call.component.column_map), axis=-1)


@translates(components.ElementwiseProductComponent)
def elementwise_product(call: Call) -> graph.Tensor:
    """y = x_1 x_2 ... x_k, element by element, of the blocks of the columns."""
    first, *others = call.blocks(call.region.columns // call.component.output_dim)
    for other in others:
        first = first * other
    return first


@translates(components.ConstantComponent, components.ConstantFunctionComponent)
def constant_row(call: Call) -> graph.Tensor:
    """y = b, in each row."""
    return call.repeated(call.parameter("output"))


@translates(components.DistributeComponent)
def distribute(call: Call) -> graph.Tensor:
    """y(i) = block source_blocks[i] of x, where the blocks are counted along its rows."""
    dim = call.component.output_dim
    blocks = call.x.reshape(call.region.rows * (call.region.columns // dim), dim)
    return blocks.take(call.indexes.source_blocks, axis=-2)


LEAST_SCALE = 1e-4
"""The least size of a scale of ScaleAndOffsetComponent; the sign stays."""


@translates(components.BackpropTruncationComponent)
def scaled(call: Call) -> Region:
    """y = scale x."""
    return call.scaled(float(call.component.scale))


@translates(
    components.FixedScaleComponent,
    components.NaturalGradientPerElementScaleComponent,
    components.PerElementScaleComponent,
)
def scales(call: Call) -> graph.Tensor:
    """y = s x, column by column."""
    return call.x * call.parameter("scales")


@translates(components.FixedBiasComponent)
def bias(call: Call) -> graph.Tensor:
    """y = x + b, column by column."""
    return call.x + call.parameter("bias")


def _for_all_blocks(call: Call, values: Array) -> Array:
    return np.tile(values, call.component.dim // call.component.block_dim)


@translates(components.PerElementOffsetComponent)
def offsets(call: Call) -> graph.Tensor:
    """y = x + b, column by column; b is the same for all blocks of the columns."""
    return call.x + call.derived("offsets", lambda: _for_all_blocks(call, call.component.offsets))


@translates(components.ScaleAndOffsetComponent)
def scale_and_offset(call: Call) -> graph.Tensor:
    """y = s' x + b, column by column; s' is s, but at least 0.0001 in size."""

    def scales() -> Array:
        s = call.component.scales
        return _for_all_blocks(
            call, np.where(s < 0, np.minimum(s, -LEAST_SCALE), np.maximum(s, LEAST_SCALE))
        )

    y = call.x * call.derived("scales", scales)
    return y + call.derived("offsets", lambda: _for_all_blocks(call, call.component.offsets))


_OPERATORS: dict[type[Component], str] = {
    components.RectifiedLinearComponent: "Relu",
    components.SigmoidComponent: "Sigmoid",
    components.TanhComponent: "Tanh",
}


@translates(*_OPERATORS)
def one_operator(call: Call) -> graph.Tensor:
    """y = max(0, x), y = 1 / (1 + exp(-x)) or y = tanh x."""
    return call.x.apply(_OPERATORS[type(call.component)])


LEAST_SOFTMAX = 1e-20
LEAST_SQUARE = 2.0**-66
"""The least value of the mean square of a row, relative to the mean square of the target."""

_LARGEST = float(np.finfo(np.float32).max)


@translates(components.SoftmaxComponent)
def softmax(call: Call) -> graph.Tensor:
    """y = exp(x) / sum(exp(x)), over the columns of each row, at least 1e-20."""
    return call.x.apply("Softmax", axis=-1).maximum(LEAST_SOFTMAX)


@translates(components.LogSoftmaxComponent)
def log_softmax(call: Call) -> graph.Tensor:
    """y = x - log(sum(exp(x))), over the columns of each row."""
    return call.x.apply("LogSoftmax", axis=-1)


@translates(components.NormalizeComponent)
def normalize(call: Call) -> graph.Tensor:
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
        y = graph.concat([y, square.apply("Log") * 0.5 + float(np.log(c.target_rms))], axis=-1)
    return y.reshape(rows, c.output_dim)


@translates(components.BatchNormComponent)
def batch_norm(call: Call) -> graph.Tensor:
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


def _normalized_image(call: Call, image: graph.Tensor) -> graph.Tensor:
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


REASON = "draws random numbers: set test mode"


def _draws(component: Any) -> str:
    """Refuses a component that is not in test mode, where one of its proportions is not 0."""
    names = "dropout_proportion", "specaugment_max_proportion", "zeroed_proportion"
    is_random = any(getattr(component, name, 0.0) != 0.0 for name in names)
    return REASON if is_random and not component.test_mode else ""


@translates(
    components.ClipGradientComponent,
    components.GeneralDropoutComponent,
    components.NoOpComponent,
    components.SpecAugmentTimeMaskComponent,
    refuses=_draws,
)
def identity(call: Call) -> Region:
    """y = x; of masks, in test mode."""
    return call.scaled()


@translates(components.DropoutComponent, refuses=_draws)
def dropout(call: Call) -> Region:
    """y = (1 - p) x, in test mode."""
    return call.scaled(1.0 - float(call.component.dropout_proportion))


@translates(components.DropoutMaskComponent, refuses=_draws)
def dropout_mask(call: Call) -> graph.Tensor:
    """y = 1 - p, or 1 if continuous, in test mode."""
    c = call.component
    value = 1.0 if c.continuous else 1.0 - float(c.dropout_proportion)
    return call.repeated(graph.constant(call.graph, value))
