"""The rules of component nodes.

Most components compute each row from the same row of their input. The types that look along time
have closed forms here, which give the same answers as the index rules of their classes but cost
nothing for each row; any other type is asked about arrays of indexes.
"""

from __future__ import annotations

from nnet3_descriptors import check_limit
from nnet3_descriptors.components import (
    Component,
    StatisticsExtractionComponent,
    StatisticsPoolingComponent,
)
from nnet3_descriptors.components.index_rules import NoInputRules, TimeOffsetRules

from nnet3_graph.errors import RequestError
from nnet3_graph.rules import ALWAYS, NEVER, All, AnyOf, Asked, ByTime, Optional, Rule, Shift


def component_rule(component: Component, source: int) -> Rule:
    """Returns the rule of a component node.

    Args:
        component: the component.
        source: the number of the component-input node.
    """
    if type(component).input_dependencies is Component.input_dependencies:
        return Shift(source, 0, 0)
    match component:
        case TimeOffsetRules():
            return _at_offsets(component, source)
        case StatisticsExtractionComponent():
            _check_period(component.output_period, component)
            return _in_period(component.output_period, component.input_period, source)
        case StatisticsPoolingComponent(input_period=period):
            _check_period(period, component)
            window = range(-component.left_context, component.right_context + 1, period)
            return ByTime((AnyOf(source, window), *[NEVER] * (period - 1)))
        case NoInputRules():
            return ALWAYS
    return Asked(source, component)


def _check_period(period: int, component: Component) -> None:
    what = f"{component.type}: the frames after which its reads are the same"
    check_limit("modulus", period, what, RequestError)


def _at_offsets(component: TimeOffsetRules, source: int) -> Rule:
    """Returns the rule of rows that read several times, some of which may be missing."""
    required = set(component.required_time_offsets)
    reads = ((Shift(source, offset, 0), offset in required) for offset in component.time_offsets)
    return All(tuple(read if is_required else Optional(read) for read, is_required in reads))


def _in_period(length: int, step: int, source: int) -> Rule:
    """Returns the rule of rows that read all rows of the period that they lie in."""
    periods = (range(-time, length - time, step) for time in range(length))
    return ByTime(tuple(AnyOf(source, period) for period in periods))
