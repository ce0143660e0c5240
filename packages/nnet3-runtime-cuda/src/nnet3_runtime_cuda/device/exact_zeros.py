"""Finds the components whose outputs must be zero wherever all of their inputs are.

A NormalizeComponent scales each row to the same size, whatever its size was. Where a product of
zeros is a rounding error of neighbouring frames instead of zero, as with minimal filtering, that
error becomes as large as any other output. A bias hides such an error, unless it is zero too.
"""

from __future__ import annotations

from nnet3_descriptors import Nnet
from nnet3_descriptors.components import Component, CompositeComponent, NormalizeComponent


def with_exact_zeros(nnet: Nnet) -> frozenset[int]:
    """Numbers of the components without a bias, or with zeros in it, if the network normalizes."""
    if not any(map(_normalizes, nnet.components)):
        return frozenset()
    return frozenset(
        number for number, component in enumerate(nnet.components) if not _has_bias(component)
    )


def _normalizes(component: Component) -> bool:
    """Whether a component or a part of it is a NormalizeComponent."""
    if isinstance(component, CompositeComponent):
        return any(map(_normalizes, component.components))
    return isinstance(component, NormalizeComponent)


def _has_bias(component: Component) -> bool:
    """Whether a component adds to each column of its output a number that is not zero."""
    bias = component.parameter_arrays().get("bias_params")
    return bias is not None and bias.size > 0 and bool(bias.all())
