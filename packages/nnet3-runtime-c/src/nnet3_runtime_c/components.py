"""Components as calls of C functions: which can be converted, and their statements."""

from __future__ import annotations

import attrs
from nnet3_descriptors import components as types
from nnet3_descriptors.components import Component, ComponentProperties

from nnet3_runtime_c import elements, products, times
from nnet3_runtime_c.calls import CONVERSIONS, Call, Statements

_REGISTERED = elements, products, times
"""The modules whose conversions are known."""


def why_not(component: Component) -> str:
    """Why a component cannot be expressed; "" if it can."""
    if isinstance(component, types.CompositeComponent):
        if any(
            isinstance(each, types.BatchNormComponent) and not each.test_mode
            for each in component.components
        ):
            return "normalizes by some rows of the minibatch: set test mode"
        parts = ((number, why_not(part)) for number, part in enumerate(component.components))
        return next((f"has a part {number} that {why}" for number, why in parts if why), "")
    if type(component) not in CONVERSIONS:
        return "has no conversion here"
    names = "dropout_proportion", "specaugment_max_proportion", "zeroed_proportion"
    is_random = any(getattr(component, name, 0.0) != 0.0 for name in names)
    if is_random and not getattr(component, "test_mode", True):
        return "draws random numbers: set test mode"
    return ""


def statements(call: Call) -> Statements:
    """The statements that compute the output of a component."""
    adds = call.component.properties & ComponentProperties.PROPAGATE_ADDS
    if not call.adds or not adds or type(call.component) in products.PRODUCTS:
        yield from CONVERSIONS[type(call.component)](call)
        return
    found = call.scratch.new(call.y.rows, call.y.columns)
    yield from CONVERSIONS[type(call.component)](attrs.evolve(call, y=found, adds=False))
    yield call.constants.call("add", found.rows, found.columns, 1.0, found, call.y)


def joined(call: Call, component: Component, name: str) -> Call | None:
    """The call of a product that does the work of the component behind it, too.

    Args:
        call: The product, perhaps with an end.
        component: The component, which reads all of the output of the product, and replaces it.
        name: Its name.

    Returns:
        None if it cannot: an `End` is a rectifier, then a scale and an offset of each column.
    """
    if type(call.component) not in products.PRODUCTS:
        return None
    end = call.end
    if type(component) in elements.IDENTITIES:
        return call
    if end.scales is not None or end.offsets is not None:
        return None
    if isinstance(component, types.RectifiedLinearComponent) and not end.relu:
        return attrs.evolve(call, end=attrs.evolve(end, relu=True))
    found = elements.scale_and_offset(component)
    if found is None:
        return None
    scales, offsets = found
    return attrs.evolve(call, end=attrs.evolve(end, scales=scales, offsets=offsets, name=name))
