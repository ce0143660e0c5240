"""The component types, one class for each."""

from nnet3_descriptors.components.base import (
    Component,
    PrecomputedIndexes,
    UpdatableComponent,
    component_class,
    component_types,
)
from nnet3_descriptors.components.config_line import ConfigLine
from nnet3_descriptors.components.properties import ComponentProperties

__all__ = [
    "Component",
    "ComponentProperties",
    "ConfigLine",
    "PrecomputedIndexes",
    "UpdatableComponent",
    "component_class",
    "component_types",
]
