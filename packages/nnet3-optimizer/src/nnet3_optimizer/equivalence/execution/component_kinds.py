"""The facts about components that symbolic execution needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from nnet3_descriptors.components import ComponentProperties as Property

if TYPE_CHECKING:
    from nnet3_descriptors import Component

_RELU = "RectifiedLinearComponent"
_COPIES = "NoOpComponent", "BackpropTruncationComponent"
"""The components whose output is a scale times their input."""

# Plain numbers, because operations on flags take several times as long.
_SIMPLE, _MEMO, _RANDOM = int(Property.SIMPLE), int(Property.USES_MEMO), int(Property.RANDOM)
_PROPAGATE_ADDS, _BACKPROP_ADDS = int(Property.PROPAGATE_ADDS), int(Property.BACKPROP_ADDS)
_NEEDS_INPUT = int(Property.BACKPROP_NEEDS_INPUT)
_NEEDS_OUTPUT = int(Property.BACKPROP_NEEDS_OUTPUT)
_UPDATABLE = int(Property.UPDATABLE)


@attrs.frozen
class ComponentKind:
    """The facts about a component that symbolic execution needs.

    Attributes:
        works_by_rows: Whether it is an unknown function of each row, not of all rows together.
        propagate_adds, backprop_adds: Whether it adds to its output and its input derivative.
        backprop_needs_input, backprop_needs_output: The values that it reads when it runs backward.
        is_random: Whether its output differs each time.
        is_updatable: Whether it has parameters.
        scale: Its output is its input times this; None for components that compute.
        is_relu: Whether its backward pass only needs to know which of its outputs are positive.
    """

    works_by_rows: bool
    propagate_adds: bool
    backprop_adds: bool
    backprop_needs_input: bool
    backprop_needs_output: bool
    is_random: bool
    is_updatable: bool
    scale: float | None
    is_relu: bool

    @classmethod
    def of(cls, component: Component) -> ComponentKind:
        """Returns the kind of a component."""
        has = int(component.properties)
        return cls(
            works_by_rows=has & (_SIMPLE | _MEMO | _RANDOM) == _SIMPLE,
            propagate_adds=has & _PROPAGATE_ADDS != 0,
            backprop_adds=has & _BACKPROP_ADDS != 0,
            backprop_needs_input=has & _NEEDS_INPUT != 0,
            backprop_needs_output=has & _NEEDS_OUTPUT != 0,
            is_random=has & _RANDOM != 0,
            is_updatable=has & _UPDATABLE != 0,
            scale=float(getattr(component, "scale", 1.0)) if component.type in _COPIES else None,
            is_relu=component.type == _RELU,
        )
