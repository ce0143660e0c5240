"""Affine and linear maps of the columns."""

from nnet3_descriptors.components import (
    AffineComponent,
    BlockAffineComponent,
    FixedAffineComponent,
    LinearComponent,
    NaturalGradientAffineComponent,
    NaturalGradientRepeatedAffineComponent,
    RepeatedAffineComponent,
    TdnnComponent,
)

from nnet3_runtime_onnx.components.declaration import Call, translates
from nnet3_runtime_onnx.graph import Tensor


@translates(AffineComponent, FixedAffineComponent, NaturalGradientAffineComponent)
def affine(call: Call) -> Tensor:
    """y = x W^T + b."""
    return call.affine("linear_params", "bias_params")


@translates(LinearComponent)
def linear(call: Call) -> Tensor:
    """y = x W^T."""
    return call.affine("params")


@translates(BlockAffineComponent)
def block_affine(call: Call) -> Tensor:
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


@translates(RepeatedAffineComponent, NaturalGradientRepeatedAffineComponent)
def repeated_affine(call: Call) -> Tensor:
    """y_k = x_k W^T + b for each block k of the columns."""
    count = call.component.num_repeats
    x = call.x.reshape(call.region.rows, count, call.region.columns // count)
    y = x @ call.transposed("linear_params") + call.parameter("bias_params")
    return y.reshape(call.rows_out, call.component.output_dim)


@translates(TdnnComponent)
def tdnn(call: Call) -> Tensor:
    """y(t) = sum over k of W_k x(t + time offset k) + b; the x side by side."""
    offsets = range(len(call.component.time_offsets))
    y = call.spliced([call.rows_at(k) for k in offsets]) @ call.transposed("linear_params")
    return y + call.parameter("bias_params") if call.component.bias_params.size else y
