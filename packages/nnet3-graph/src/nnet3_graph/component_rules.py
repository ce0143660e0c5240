"""The rules of component nodes.

Most components compute each row from the same row of their input. The types that look along time
have closed forms here, which give the same answers as the index rules of their classes but cost
nothing for each row; any other type is asked about arrays of indexes.
"""

from __future__ import annotations

from nnet3_descriptors.components.base import Component
from nnet3_descriptors.components.tdnn import TdnnComponent

from nnet3_graph.rules import All, Asked, Rule, Shift


def component_rule(component: Component, source: int) -> Rule:
    """Returns the rule of a component node.

    Args:
        component: the component.
        source: the number of the component-input node.
    """
    match component:
        case TdnnComponent():
            return All(tuple(Shift(source, offset, 0) for offset in component.time_offsets))
    if type(component).input_dependencies is Component.input_dependencies:
        return Shift(source, 0, 0)
    return Asked(source, component)
