"""How a component type is declared, and what all types have by their declaration."""

from nnet3_descriptors.components.declaration.base import (
    Component,
    IndexesType,
    PrecomputedIndexes,
    UpdatableComponent,
)
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.kinds import (
    Boolean,
    Integer,
    IntegerPairs,
    Integers,
)
from nnet3_descriptors.components.declaration.properties import ComponentProperties
from nnet3_descriptors.components.declaration.registry import (
    class_named,
    component_class,
    component_types,
)

__all__ = [
    "Boolean",
    "Component",
    "ComponentProperties",
    "ConfigLine",
    "IndexesType",
    "Integer",
    "IntegerPairs",
    "Integers",
    "PrecomputedIndexes",
    "UpdatableComponent",
    "class_named",
    "component_class",
    "component_types",
]
