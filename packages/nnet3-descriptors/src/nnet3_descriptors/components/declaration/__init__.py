"""The declaration of component types, and the code that follows from it for all types."""

from nnet3_descriptors.components.declaration.base import (
    Component,
    IndexesType,
    PrecomputedIndexes,
    UpdatableComponent,
)
from nnet3_descriptors.components.declaration.config_line import ConfigLine
from nnet3_descriptors.components.declaration.fields import (
    Declared,
    FieldSpec,
    boolean,
    declare,
    double,
    double_matrix,
    double_vector,
    flag,
    integer,
    integer_pairs,
    integers,
    matrix,
    real,
    vector,
)
from nnet3_descriptors.components.declaration.initial import (
    affine_params,
    dims,
    filled,
    linear_params,
    matrix_from_file,
    normal,
    vector_from_file,
)
from nnet3_descriptors.components.declaration.kinds import (
    Boolean,
    Integer,
    IntegerPairs,
    Integers,
    Kind,
)
from nnet3_descriptors.components.declaration.properties import ComponentProperties
from nnet3_descriptors.components.declaration.registry import (
    class_named,
    component,
    component_class,
    component_types,
    is_component_type,
)

__all__ = [
    "Boolean",
    "Component",
    "ComponentProperties",
    "ConfigLine",
    "Declared",
    "FieldSpec",
    "IndexesType",
    "Integer",
    "IntegerPairs",
    "Integers",
    "Kind",
    "PrecomputedIndexes",
    "UpdatableComponent",
    "affine_params",
    "boolean",
    "class_named",
    "component",
    "component_class",
    "component_types",
    "declare",
    "dims",
    "double",
    "double_matrix",
    "double_vector",
    "filled",
    "flag",
    "integer",
    "integer_pairs",
    "integers",
    "is_component_type",
    "linear_params",
    "matrix",
    "matrix_from_file",
    "normal",
    "real",
    "vector",
    "vector_from_file",
]
