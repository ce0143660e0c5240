"""Scales, offsets and nonlinearities of single elements, and the identity."""

import numpy as np
from nnet3_descriptors.components import (
    BackpropTruncationComponent,
    ClipGradientComponent,
    FixedBiasComponent,
    FixedScaleComponent,
    NaturalGradientPerElementScaleComponent,
    NoOpComponent,
    PerElementOffsetComponent,
    PerElementScaleComponent,
    RectifiedLinearComponent,
    ScaleAndOffsetComponent,
    SigmoidComponent,
    TanhComponent,
)

from nnet3_runtime_onnx.components.declaration import Array, Call, translates
from nnet3_runtime_onnx.graph import Tensor
from nnet3_runtime_onnx.matrices import Region

LEAST_SCALE = 1e-4
"""The least size of a scale of ScaleAndOffsetComponent; the sign stays."""


@translates(ClipGradientComponent, NoOpComponent)
def identity(call: Call) -> Region:
    """y = x."""
    return call.scaled()


@translates(BackpropTruncationComponent)
def scaled(call: Call) -> Region:
    """y = scale x."""
    return call.scaled(float(call.component.scale))


@translates(FixedScaleComponent, NaturalGradientPerElementScaleComponent, PerElementScaleComponent)
def scales(call: Call) -> Tensor:
    """y = s x, column by column."""
    return call.x * call.parameter("scales")


@translates(FixedBiasComponent)
def bias(call: Call) -> Tensor:
    """y = x + b, column by column."""
    return call.x + call.parameter("bias")


def _for_all_blocks(call: Call, values: Array) -> Array:
    return np.tile(values, call.component.dim // call.component.block_dim)


@translates(PerElementOffsetComponent)
def offsets(call: Call) -> Tensor:
    """y = x + b, column by column; b is the same for all blocks of the columns."""
    return call.x + call.derived("offsets", lambda: _for_all_blocks(call, call.component.offsets))


@translates(ScaleAndOffsetComponent)
def scale_and_offset(call: Call) -> Tensor:
    """y = s' x + b, column by column; s' is s, but at least 0.0001 in size."""

    def scales() -> Array:
        s = call.component.scales
        return _for_all_blocks(
            call, np.where(s < 0, np.minimum(s, -LEAST_SCALE), np.maximum(s, LEAST_SCALE))
        )

    y = call.x * call.derived("scales", scales)
    return y + call.derived("offsets", lambda: _for_all_blocks(call, call.component.offsets))


@translates(RectifiedLinearComponent)
def rectified_linear(call: Call) -> Tensor:
    """y = max(0, x)."""
    return call.x.apply("Relu")


@translates(SigmoidComponent)
def sigmoid(call: Call) -> Tensor:
    """y = 1 / (1 + exp(-x))."""
    return call.x.apply("Sigmoid")


@translates(TanhComponent)
def tanh(call: Call) -> Tensor:
    """y = tanh x."""
    return call.x.apply("Tanh")
