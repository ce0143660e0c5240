"""What a network is made of: its nodes and their names, its dimensions, and what has to fit.

A component node is preceded by its own component-input node, which holds the descriptor; config
lines show the two as one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Final

import attrs

from nnet3_descriptors import descriptors, indexes, text
from nnet3_descriptors.components.declaration.base import Component
from nnet3_descriptors.descriptors.grammar import FORMS
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.frozen_arrays import ByFields
from nnet3_descriptors.limits import check_limit
from nnet3_descriptors.similar_names import hint

INPUT_SUFFIX: Final = "_input"
"""The suffix that makes the name of a component-input node from that of its component node."""

OBJECTIVES: Final = ("linear", "quadratic")


def _check_name(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not text.is_valid_name(value):
        raise NetworkError(
            f"'{attribute.name}' must begin with a letter or '_' and hold only letters, digits, "
            f"'_', '-' and '.' (got {value!r})"
        )


def _check_token(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not text.is_token(value):
        raise NetworkError(f"'{attribute.name}' must be {text.TOKEN_CHARACTERS} (got {value!r})")


def _check_dim(node: InputNode | DimRangeNode, _: object, dim: int) -> None:
    indexes.require_int32(f"the dimension of node '{node.name}'", dim)
    if dim <= 0:
        raise NetworkError(f"the dimension of node '{node.name}' must be positive (got {dim})")


def _check_descriptor(
    node: ComponentInputNode | OutputNode, _: object, descriptor: descriptors.Descriptor
) -> None:
    if not isinstance(descriptor, descriptors.Descriptor):
        raise NetworkError(
            f"the input of node '{node.name}' must be a Descriptor, which parse_descriptor makes "
            f"(got {descriptor!r})"
        )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class InputNode(ByFields):
    """An input of the network.

    Attributes:
        name: Name of the node, as requests call it.
        dim: Number of columns.
    """

    name: str = attrs.field(validator=_check_name)
    dim: int = attrs.field(validator=_check_dim)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ComponentInputNode(ByFields):
    """The input of the component node that follows it.

    Attributes:
        name: Name of the component node and the suffix "_input".
        descriptor: The descriptor of the input.
    """

    name: str = attrs.field(validator=_check_name)
    descriptor: descriptors.Descriptor = attrs.field(validator=_check_descriptor)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ComponentNode(ByFields):
    """A component applied to the value of the component-input node before it.

    Attributes:
        name: Name of the node.
        component: Name of the component; several nodes may share one.
    """

    name: str = attrs.field(validator=_check_name)
    component: str = attrs.field(validator=_check_token)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class DimRangeNode(ByFields):
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
        indexes.require_int32(f"'dim_offset' of node '{self.name}'", dim_offset)
        if dim_offset < 0:
            raise NetworkError(
                f"'dim_offset' of node '{self.name}' must be >= 0 (got {dim_offset})"
            )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class OutputNode(ByFields):
    """An output of the network.

    Attributes:
        name: Name of the node, as requests call it.
        descriptor: The descriptor of the output.
        objective: "linear" (for log-probabilities) or "quadratic"; used in training.
    """

    name: str = attrs.field(validator=_check_name)
    descriptor: descriptors.Descriptor = attrs.field(validator=_check_descriptor)
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


@attrs.frozen(kw_only=True)
class NetworkStructure:
    """The parts of a network. An `Nnet` is one that has been checked.

    Attributes:
        component_names: One name for each component.
        components: The components, in the order of the file.
        nodes: The nodes. The component-input node of a component node comes directly before it.
    """

    component_names: tuple[str, ...]
    components: tuple[Component, ...]
    nodes: tuple[Node, ...]

    # -- nodes ---------------------------------------------------------------------------------

    @cached_property
    def node_indexes(self) -> Mapping[str, int]:
        """The position in `nodes` of each node, by name."""
        return MappingProxyType({node.name: index for index, node in enumerate(self.nodes)})

    @property
    def node_names(self) -> tuple[str, ...]:
        """The name of each node."""
        return tuple(node.name for node in self.nodes)

    def node_index(self, name: str) -> int:
        """Returns the position in `nodes` of the node of that name.

        Raises:
            NetworkError: There is none.
        """
        try:
            return self.node_indexes[name]
        except KeyError:
            message = f"there is no node '{name}'" + hint(name, self.node_indexes)
            raise NetworkError(message) from None

    def node(self, name: str) -> Node:
        """Returns the node of that name.

        Raises:
            NetworkError: There is none.
        """
        return self.nodes[self.node_index(name)]

    def node_dim(self, name: str) -> int:
        """Returns the number of columns of a node's value.

        Raises:
            NetworkError: There is no node of that name.
        """
        node = self.node(name)
        match node:
            case InputNode() | DimRangeNode():
                return node.dim
            case ComponentNode():
                return self.component_of(node).output_dim
            case ComponentInputNode() | OutputNode():
                return node.descriptor.dim(self.node_dim)

    def input_of(self, node: ComponentNode) -> ComponentInputNode:
        """Returns the component-input node that belongs to a component node."""
        found = self.node(node.name + INPUT_SUFFIX)
        assert isinstance(found, ComponentInputNode)
        return found

    def sources_of(self, node: Node) -> tuple[str, ...]:
        """Returns the names of the nodes that a node takes its value from."""
        match node:
            case DimRangeNode():
                return (node.source,)
            case ComponentNode():
                return (node.name + INPUT_SUFFIX,)
            case ComponentInputNode() | OutputNode():
                return node.descriptor.node_names
        return ()

    @property
    def input_nodes(self) -> tuple[InputNode, ...]:
        """The inputs of the network, in order."""
        return tuple(node for node in self.nodes if isinstance(node, InputNode))

    @property
    def output_nodes(self) -> tuple[OutputNode, ...]:
        """The outputs of the network, in order."""
        return tuple(node for node in self.nodes if isinstance(node, OutputNode))

    @cached_property
    def modulus(self) -> int:
        """The network means the same when t shifts by a multiple of this, in frames.

        It is the least common multiple of the moduli of all descriptors.
        """
        return math.lcm(
            *(
                node.descriptor.modulus
                for node in self.nodes
                if isinstance(node, ComponentInputNode | OutputNode)
            )
        )

    # -- components ----------------------------------------------------------------------------

    @cached_property
    def component_indexes(self) -> Mapping[str, int]:
        """The position in `components` of each component, by name."""
        return MappingProxyType({name: index for index, name in enumerate(self.component_names)})

    def component_index(self, name: str) -> int:
        """Returns the position in `components` of the component of that name.

        Raises:
            NetworkError: There is none.
        """
        try:
            return self.component_indexes[name]
        except KeyError:
            message = f"there is no component '{name}'" + hint(name, self.component_indexes)
            raise NetworkError(message) from None

    def component(self, name: str) -> Component:
        """Returns the component of that name.

        Raises:
            NetworkError: There is none.
        """
        return self.components[self.component_index(name)]

    def component_of(self, node: ComponentNode) -> Component:
        """Returns the component that a component node applies."""
        return self.component(node.component)

    @property
    def num_parameters(self) -> int:
        """Number of trainable values in all components."""
        return sum(component.num_parameters for component in self.components)


def check_network(nnet: NetworkStructure) -> None:
    """Checks names, references, the order of nodes, and dimensions.

    Raises:
        NetworkError: With the first fault found.
    """
    if len(nnet.component_names) != len(nnet.components):
        raise NetworkError(
            f"there must be one name for each component "
            f"(got {len(nnet.component_names)} names, {len(nnet.components)} components)"
        )
    check_limit("nodes", len(nnet.nodes), "the number of nodes")
    check_limit("nodes", len(nnet.components), "the number of components")
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        if not isinstance(name, str) or not text.is_token(name):
            raise NetworkError(f"component names must be {text.TOKEN_CHARACTERS} (got {name!r})")
        if not isinstance(component, Component):
            raise NetworkError(f"component '{name}' must be a Component (got {component!r})")
        for what, dim in (("input", component.input_dim), ("output", component.output_dim)):
            indexes.require_int32(f"the {what} dimension of component '{name}'", dim)
    for node in nnet.nodes:
        if not isinstance(node, Node):
            raise NetworkError(f"nodes must be instances of the classes of nodes (got {node!r})")
    for name, count in _repeated(nnet.component_names):
        raise NetworkError(f"{count} components have the name '{name}'")
    for name, count in _repeated(node.name for node in nnet.nodes):
        raise NetworkError(f"{count} nodes have the name '{name}'", node=name)
    if not nnet.input_nodes:
        raise NetworkError("the network has no input node")
    if not nnet.output_nodes:
        raise NetworkError("the network has no output node")
    for faults in (_unpaired, _unresolved, _without_columns, _of_other_dims):
        for node, fault in faults(nnet):
            raise NetworkError(fault, node=node.name)


def _repeated(names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Returns the names that occur several times, and how often."""
    return ((name, count) for name, count in Counter(names).items() if count > 1)


_Faults = Iterator[tuple[Node, str]]
"""Nodes, and what is wrong with them. Who asks for them ends at the first."""


def _unpaired(nnet: NetworkStructure) -> _Faults:
    """Component-input nodes and component nodes that do not come in pairs."""
    for before, node in zip((None, *nnet.nodes), (*nnet.nodes, None), strict=True):
        if isinstance(before, ComponentInputNode) and not isinstance(node, ComponentNode):
            yield before, f"node '{before.name}' must be followed by its component node"
        if isinstance(node, ComponentNode):
            wanted = node.name + INPUT_SUFFIX
            if not isinstance(before, ComponentInputNode) or before.name != wanted:
                fault = f"must follow a component-input node '{wanted}'"
                yield node, f"component node '{node.name}' {fault}"


def _unresolved(nnet: NetworkStructure) -> _Faults:
    """Nodes that refer to components or nodes that do not exist, or may not be referred to."""
    for node in nnet.nodes:
        match node:
            case ComponentNode() if node.component not in nnet.component_indexes:
                fault = f"refers to component '{node.component}', which does not exist"
                yield node, f"node '{node.name}' {fault}"
            case ComponentInputNode() | OutputNode():
                for name in node.descriptor.node_names:
                    if fault := _fault_of_reference(nnet, name):
                        yield node, f"node '{node.name}' {fault}"


def _fault_of_reference(nnet: NetworkStructure, name: str) -> str:
    if name not in nnet.node_indexes:
        return f"refers to node '{name}', which does not exist"
    if name in FORMS:
        return f"refers to node '{name}', whose name is that of a form of descriptor"
    if isinstance(nnet.node(name), ComponentInputNode | OutputNode):
        allowed = "input, component or dim-range nodes"
        return f"must take its input from {allowed} ('{name}' is none)"
    return ""


def _without_columns(nnet: NetworkStructure) -> _Faults:
    """Dim-range nodes whose columns do not exist; the widths of input nodes are limited."""
    for node in nnet.nodes:
        if isinstance(node, InputNode):
            check_limit("dim", node.dim, f"the dimension of node '{node.name}'", node=node.name)
        if isinstance(node, DimRangeNode) and (fault := _fault_of_range(nnet, node)):
            yield node, f"dim-range node '{node.name}' {fault}"


def _fault_of_range(nnet: NetworkStructure, node: DimRangeNode) -> str:
    known = node.source in nnet.node_indexes
    if not known or not isinstance(nnet.node(node.source), InputNode | ComponentNode):
        return f"must refer to an input or component node ('{node.source}' is none)"
    last, count = node.dim_offset + node.dim - 1, nnet.node_dim(node.source)
    columns = f"{node.dim_offset} to {last}"
    return "" if last < count else f"takes columns {columns}, but '{node.source}' has {count}"


def _of_other_dims(nnet: NetworkStructure) -> _Faults:
    """Nodes whose descriptors have no dimension, or another than their components take."""
    for node, follower in zip(nnet.nodes, (*nnet.nodes[1:], None), strict=True):
        if not isinstance(node, ComponentInputNode | OutputNode):
            continue
        try:
            dim = nnet.node_dim(node.name)
        except NetworkError as error:
            raise NetworkError(f"node '{node.name}': {error}", node=node.name) from error
        what = f"the dimension of node '{node.name}'"
        if not indexes.is_int32(dim):
            yield node, f"{what} must fit in 32 bits (got {dim})"
        check_limit("dim", dim, what, node=node.name)
        if isinstance(follower, ComponentNode):
            wanted = nnet.component_of(follower).input_dim
            if dim != wanted:
                taken = f"its component '{follower.component}' takes {wanted}"
                fault = f"the input of node '{follower.name}' has dimension {dim}, but {taken}"
                yield follower, fault
