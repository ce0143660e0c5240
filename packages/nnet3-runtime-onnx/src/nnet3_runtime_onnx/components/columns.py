"""Maps of the columns without parameters, constants, and blocks of columns as rows."""

import numpy as np
from nnet3_descriptors.components import (
    ConstantComponent,
    ConstantFunctionComponent,
    DistributeComponent,
    ElementwiseProductComponent,
    PermuteComponent,
    PnormComponent,
    SumBlockComponent,
    SumGroupComponent,
)

from nnet3_runtime_onnx.components.declaration import Array, Call, translates
from nnet3_runtime_onnx.graph import Tensor


@translates(PnormComponent)
def pnorm(call: Call) -> Tensor:
    """y_g = |x_g|, the Euclidean norm, for each group g of neighbouring columns."""
    groups = call.component.output_dim
    x = call.x.reshape(call.rows_out, groups, call.region.columns // groups)
    return (x * x).reduce("ReduceSum", -1).apply("Sqrt")


@translates(SumGroupComponent)
def sum_group(call: Call) -> Tensor:
    """y_g = the sum of the columns of group g: a product with ones and zeros."""
    sizes = call.component.sizes

    def members() -> Array:
        return np.repeat(np.eye(len(sizes)), sizes, axis=0)

    return call.x @ call.derived("groups", members)


@translates(SumBlockComponent)
def sum_block(call: Call) -> Tensor:
    """y = scale (x_1 + ... + x_k), for the blocks of the columns."""
    dim = call.component.output_dim
    x = call.x.reshape(call.rows_out, call.region.columns // dim, dim)
    return x.reduce("ReduceSum", -2) * float(call.component.scale)


@translates(PermuteComponent)
def permute(call: Call) -> Tensor:
    """y_i = x_m(i) for each column i."""
    return call.x.take(np.asarray(call.component.column_map), axis=-1)


@translates(ElementwiseProductComponent)
def elementwise_product(call: Call) -> Tensor:
    """y = x_1 x_2 ... x_k, element by element, of the blocks of the columns."""
    first, *others = call.blocks(call.region.columns // call.component.output_dim)
    for other in others:
        first = first * other
    return first


@translates(ConstantComponent, ConstantFunctionComponent)
def constant(call: Call) -> Tensor:
    """y = b, in each row."""
    return call.repeated(call.parameter("output"))


@translates(DistributeComponent)
def distribute(call: Call) -> Tensor:
    """y(i) = block source_blocks[i] of x, where the blocks are counted along its rows."""
    dim = call.component.output_dim
    blocks = call.x.reshape(call.region.rows * (call.region.columns // dim), dim)
    return blocks.take(call.indexes.source_blocks, axis=-2)
