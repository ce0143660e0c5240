"""The rules of component nodes.

Most components compute each row from the same row of their input. The types that look along time
have closed forms: these give the same answers as the index rules of their classes, without work for
each row. The index rules of any other type are called with arrays of indexes.
"""

from __future__ import annotations

from typing import Any

from nnet3_computation import RequestError
from nnet3_descriptors import check_limit
from nnet3_descriptors.components import Component
from nnet3_descriptors.components.index_rules import AnyWithin, AtOffsets, has_closed_form

from nnet3_graph.rules import ALWAYS, NEVER, All, AnyOf, Asked, ByTime, Optional, Rule, Shift


def component_rule(component: Component, source: int) -> Rule:
    """Returns the rule of a component node.

    Args:
        component: the component.
        source: the number of the component-input node.

    Raises:
        RequestError: the component's modulus is above the limit, or its closed form is for times
            that do not divide it.
    """
    component_type: Any = type(component)
    if not has_closed_form(component_type):
        return Asked(source, component)
    if component_type.closed_form is Component.closed_form:  # most components: the same row
        return Shift(source, 0, 0)
    modulus = component.modulus
    what = f"{component.type}: the frames after which its reads are the same"
    check_limit("modulus", modulus, what, RequestError)
    form = component.closed_form()
    if form is None:
        return Asked(source, component)
    if not form or modulus % len(form):
        raise RequestError(
            f"{component.type}: the closed form must have a divisor of the modulus {modulus} as "
            f"its length, found {len(form)}"
        )
    rules = tuple(_rule(reads, source) for reads in form)
    return rules[0] if len(rules) == 1 else ByTime(rules)


def _rule(reads: AtOffsets | AnyWithin | None, source: int) -> Rule:
    match reads:
        case None:
            return NEVER
        case AnyWithin(offsets=window):
            return AnyOf(source, window)
        case AtOffsets(offsets=(), optional=()):
            return ALWAYS
        case AtOffsets(offsets=(offset,), optional=()):
            return Shift(source, offset, 0)
    shifts = ((offset, Shift(source, offset, 0)) for offset in reads.offsets)
    return All(
        tuple(Optional(shift) if each in reads.optional else shift for each, shift in shifts)
    )
