"""The nodes of a network.

A component node is preceded by its own component-input node, which holds the descriptor; config
lines show the two as one.
"""

from typing import Final

import attrs

from nnet3_descriptors.descriptors import Descriptor
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.indexes.integers import require_int32
from nnet3_descriptors.text import TOKEN_CHARACTERS, is_token, is_valid_name

INPUT_SUFFIX: Final = "_input"
"""The suffix that makes the name of a component-input node from that of its component node."""

OBJECTIVES: Final = ("linear", "quadratic")


def _check_name(_: object, attribute: "attrs.Attribute[str]", value: str) -> None:
    if not isinstance(value, str) or not is_valid_name(value):
        raise NetworkError(
            f"'{attribute.name}' must begin with a letter or '_' and hold only letters, digits, "
            f"'_', '-' and '.' (got {value!r})"
        )


def _check_token(_: object, attribute: "attrs.Attribute[str]", value: str) -> None:
    if not isinstance(value, str) or not is_token(value):
        raise NetworkError(f"'{attribute.name}' must be {TOKEN_CHARACTERS} (got {value!r})")


def _check_dim(node: "InputNode | DimRangeNode", _: object, dim: int) -> None:
    require_int32(f"the dimension of node '{node.name}'", dim)
    if dim <= 0:
        raise NetworkError(f"the dimension of node '{node.name}' must be positive (got {dim})")


def _check_descriptor(
    node: "ComponentInputNode | OutputNode", _: object, descriptor: Descriptor
) -> None:
    if not isinstance(descriptor, Descriptor):
        raise NetworkError(
            f"the input of node '{node.name}' must be a Descriptor, which parse_descriptor makes "
            f"(got {descriptor!r})"
        )


@attrs.frozen(kw_only=True)
class InputNode:
    """An input of the network.

    Attributes:
        name: Name of the node, as requests call it.
        dim: Number of columns.
    """

    name: str = attrs.field(validator=_check_name)
    dim: int = attrs.field(validator=_check_dim)


@attrs.frozen(kw_only=True)
class ComponentInputNode:
    """The input of the component node that follows it.

    Attributes:
        name: Name of the component node and the suffix "_input".
        descriptor: The descriptor of the input.
    """

    name: str = attrs.field(validator=_check_name)
    descriptor: Descriptor = attrs.field(validator=_check_descriptor)


@attrs.frozen(kw_only=True)
class ComponentNode:
    """A component applied to the value of the component-input node before it.

    Attributes:
        name: Name of the node.
        component: Name of the component; several nodes may share one.
    """

    name: str = attrs.field(validator=_check_name)
    component: str = attrs.field(validator=_check_token)


@attrs.frozen(kw_only=True)
class DimRangeNode:
    """A range of the columns of an input or component node.

    Attributes:
        name: Name of the node.
        source: Name of the node whose columns these are.
        dim_offset: The first column, from 0.
        dim: Number of columns.
    """

    name: str = attrs.field(validator=_check_name)
    source: str = attrs.field(validator=_check_name)
    dim_offset: int = attrs.field()
    dim: int = attrs.field(validator=_check_dim)

    @dim_offset.validator
    def _check_dim_offset(self, _: object, dim_offset: int) -> None:
        require_int32(f"'dim_offset' of node '{self.name}'", dim_offset)
        if dim_offset < 0:
            raise NetworkError(
                f"'dim_offset' of node '{self.name}' must be >= 0 (got {dim_offset})"
            )


@attrs.frozen(kw_only=True)
class OutputNode:
    """An output of the network.

    Attributes:
        name: Name of the node, as requests call it.
        descriptor: The descriptor of the output.
        objective: "linear" (for log-probabilities) or "quadratic"; used in training.
    """

    name: str = attrs.field(validator=_check_name)
    descriptor: Descriptor = attrs.field(validator=_check_descriptor)
    objective: str = "linear"

    def __attrs_post_init__(self) -> None:
        """Checks the objective."""
        if self.objective not in OBJECTIVES:
            raise NetworkError(
                f"the objective of node '{self.name}' must be linear or quadratic "
                f"(got {self.objective!r})"
            )


Node = InputNode | ComponentInputNode | ComponentNode | DimRangeNode | OutputNode
"""A node of a network. (A node as a term of a descriptor is `descriptors.Node`.)"""
