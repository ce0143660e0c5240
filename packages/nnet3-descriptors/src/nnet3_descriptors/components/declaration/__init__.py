"""The declaration of component types, and the code that follows from it for all types."""

from nnet3_descriptors.components.declaration.base import Component as Component
from nnet3_descriptors.components.declaration.base import IndexesType as IndexesType
from nnet3_descriptors.components.declaration.base import PrecomputedIndexes as PrecomputedIndexes
from nnet3_descriptors.components.declaration.base import UpdatableComponent as UpdatableComponent
from nnet3_descriptors.components.declaration.config_line import ConfigLine as ConfigLine
from nnet3_descriptors.components.declaration.fields import FieldSpec as FieldSpec
from nnet3_descriptors.components.declaration.fields import boolean as boolean
from nnet3_descriptors.components.declaration.fields import declare as declare
from nnet3_descriptors.components.declaration.fields import double as double
from nnet3_descriptors.components.declaration.fields import double_matrix as double_matrix
from nnet3_descriptors.components.declaration.fields import double_vector as double_vector
from nnet3_descriptors.components.declaration.fields import flag as flag
from nnet3_descriptors.components.declaration.fields import integer as integer
from nnet3_descriptors.components.declaration.fields import integer_pairs as integer_pairs
from nnet3_descriptors.components.declaration.fields import integers as integers
from nnet3_descriptors.components.declaration.fields import matrix as matrix
from nnet3_descriptors.components.declaration.fields import real as real
from nnet3_descriptors.components.declaration.fields import vector as vector
from nnet3_descriptors.components.declaration.initial import affine_params as affine_params
from nnet3_descriptors.components.declaration.initial import dims as dims
from nnet3_descriptors.components.declaration.initial import filled as filled
from nnet3_descriptors.components.declaration.initial import linear_params as linear_params
from nnet3_descriptors.components.declaration.initial import matrix_from_file as matrix_from_file
from nnet3_descriptors.components.declaration.initial import normal as normal
from nnet3_descriptors.components.declaration.initial import vector_from_file as vector_from_file
from nnet3_descriptors.components.declaration.kinds import Boolean as Boolean
from nnet3_descriptors.components.declaration.kinds import Integer as Integer
from nnet3_descriptors.components.declaration.kinds import IntegerPairs as IntegerPairs
from nnet3_descriptors.components.declaration.kinds import Integers as Integers
from nnet3_descriptors.components.declaration.kinds import Kind as Kind
from nnet3_descriptors.components.declaration.properties import (
    ComponentProperties as ComponentProperties,
)
from nnet3_descriptors.components.declaration.registry import class_named as class_named
from nnet3_descriptors.components.declaration.registry import component as component
from nnet3_descriptors.components.declaration.registry import component_class as component_class
from nnet3_descriptors.components.declaration.registry import component_types as component_types
from nnet3_descriptors.components.declaration.registry import is_component_type as is_component_type
