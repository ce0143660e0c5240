"""Bias and rectification as the end of the matrix product before them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from nnet3_runtime_cuda.cuda.recorded.device_views import View
from nnet3_runtime_cuda.cuda.recorded.recorded_operations import Map, Operation, Product
from nnet3_runtime_cuda.cuda.source.chain import key_of


def with_epilogues(operations: Sequence[Operation]) -> list[Operation]:
    """The operations, with bias and rectification included in the products before them.

    A bias is a vector that is added to each row of a product's result. Rectification is the maximum
    of the sum and 0, in place.
    """
    result: list[Operation] = []
    for operation in operations:
        product = result[-1] if result else None
        if isinstance(product, Product) and isinstance(operation, Map):
            together = _taken_in(product, operation)
            if together is not None:
                result[-1] = together
                continue
        result.append(operation)
    return result


def _taken_in(product: Product, operation: Map) -> Product | None:
    """The product that does both, if there is one."""
    if (product.guards, product.decision) != (operation.guards, operation.decision) or product.relu:
        return None
    out, target = product.out, operation.out
    if out.strides[1] != 1 or 1 in out.shape or not isinstance(target, View):
        return None
    if target.shape != out.shape or key_of(target) != key_of(out):
        return None
    others = [o for o in operation.operands if not (isinstance(o, View) and _same(o, out))]
    if len(others) != 1:
        return None
    other = others[0]
    if operation.function == "maximum" and not isinstance(other, View) and other == 0.0:
        return attrs.evolve(product, relu=True)
    if operation.function != "add" or product.bias is not None or not isinstance(other, View):
        return None
    if other.strides != (0, 1) or other.dtype != out.dtype or other.overlaps(out):
        return None
    bias = View(other.address, other.shape[1:], (1,), other.dtype)
    return attrs.evolve(product, bias=bias)


def _same(a: View, b: View) -> bool:
    return a.shape == b.shape and key_of(a) == key_of(b)
