"""The network: components, and the nodes that connect them."""

import math
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar, Self

import attrs
import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3_descriptors.check import check_network
from nnet3_descriptors.components.base import Component
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.graphviz import format_dot
from nnet3_descriptors.info import format_info
from nnet3_descriptors.nodes import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Node,
    OutputNode,
)
from nnet3_descriptors.values.serialized import Serialized


@attrs.frozen(kw_only=True, repr=False)
class Nnet(Serialized):
    """A neural network. Frozen; what changes it returns a new one.

    Attributes:
        component_names: One name for each component.
        components: The components, in the order of the file.
        nodes: The nodes. The component-input node of a component node comes directly before it.

    Raises:
        NetworkError: The parts do not make a network; the message names the node.
    """

    FORMAT: ClassVar[str] = "nnet3.nnet"
    VERSION: ClassVar[int] = 1

    component_names: tuple[str, ...]
    components: tuple[Component, ...]
    nodes: tuple[Node, ...]

    def __attrs_post_init__(self) -> None:
        """Takes sequences that are no tuples, and refuses a network that contradicts itself."""
        for name in ("component_names", "components", "nodes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check_network(self)

    def __repr__(self) -> str:
        return (
            f"<Nnet: {len(self.nodes)} nodes, {len(self.components)} components, "
            f"{self.num_parameters} parameters>"
        )

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
            raise NetworkError(f"there is no node '{name}'") from None

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

    @property
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
            raise NetworkError(f"there is no component '{name}'") from None

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

    def with_components(self, replacements: Mapping[str, Component]) -> Self:
        """Returns the network with some components replaced.

        Args:
            replacements: New components by the names of those they replace.

        Raises:
            NetworkError: A name is unknown, or a dimension no longer fits.
        """
        components = list(self.components)
        for name, component in replacements.items():
            components[self.component_index(name)] = component
        return attrs.evolve(self, components=tuple(components))

    # -- parameters and statistics -------------------------------------------------------------

    def state_dict(self) -> dict[str, NDArray[np.float32]]:
        """Returns all arrays of all components: parameters, fixed values and statistics.

        Returns:
            Read-only float32 arrays by "<component>.<field>", as in "tdnn1.affine.linear_params",
            in the order of the components; float64 where files hold double precision.
        """
        return {
            f"{component_name}.{field}": array
            for component_name, component in zip(self.component_names, self.components, strict=True)
            for field, array in component.arrays().items()
        }

    def with_state_dict(self, arrays: Mapping[str, ArrayLike]) -> Self:
        """Returns the network with other arrays.

        Args:
            arrays: New values by the names of `state_dict`; of the same shapes, converted to
                the same precision. Arrays that are not named stay as they are.

        Raises:
            NetworkError: A name is unknown, a shape differs, or values are no numbers.
        """
        places = {
            f"{component_name}.{field}": (component_name, field, array)
            for component_name, component in zip(self.component_names, self.components, strict=True)
            for field, array in component.arrays().items()
        }
        fields: dict[str, dict[str, NDArray[np.float32]]] = {}
        for name, values in arrays.items():
            if name not in places:
                raise NetworkError(f"there is no array '{name}'")
            component_name, field, current = places[name]
            try:
                array = np.asarray(values, dtype=current.dtype)
            except (TypeError, ValueError) as error:
                raise NetworkError(f"'{name}' must be numbers: {error}") from error
            if array.shape != current.shape:
                raise NetworkError(
                    f"'{name}' must have the shape {current.shape} (got {array.shape})"
                )
            fields.setdefault(component_name, {})[field] = array
        return self.with_components(
            {name: self.component(name).replace(**changes) for name, changes in fields.items()}
        )

    # -- descriptions --------------------------------------------------------------------------

    def info(self) -> str:
        """Returns the text that nnet3-info prints: context, nodes and components."""
        return format_info(self)

    def to_dot(self) -> str:
        """Returns the network as a graph in the language of Graphviz."""
        return format_dot(self)
