"""Components and the nodes that connect them, looked up by name."""

import math
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

import attrs

from nnet3_descriptors.components.declaration.base import Component
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.nodes import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Node,
    OutputNode,
)
from nnet3_descriptors.similar_names import hint


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
