"""The checks that components and nodes make a network; the constructor of Nnet runs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from nnet3_descriptors.components.declaration.base import Component
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.indexes.integers import is_int32, require_int32
from nnet3_descriptors.limits import check_limit
from nnet3_descriptors.network_structure import NetworkStructure
from nnet3_descriptors.nodes import (
    INPUT_SUFFIX,
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Node,
    OutputNode,
)
from nnet3_descriptors.text import TOKEN_CHARACTERS, is_token


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
        if not isinstance(name, str) or not is_token(name):
            raise NetworkError(f"component names must be {TOKEN_CHARACTERS} (got {name!r})")
        if not isinstance(component, Component):
            raise NetworkError(f"component '{name}' must be a Component (got {component!r})")
        for what, dim in (("input", component.input_dim), ("output", component.output_dim)):
            require_int32(f"the {what} dimension of component '{name}'", dim)
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
    _check_component_input_nodes(nnet)
    for node in nnet.nodes:
        match node:
            case ComponentNode():
                _check_component_node(nnet, node)
            case ComponentInputNode() | OutputNode():
                _check_references(nnet, node)
    for node in nnet.nodes:
        if isinstance(node, InputNode):
            check_limit("dim", node.dim, f"the dimension of node '{node.name}'", node=node.name)
        if isinstance(node, DimRangeNode):
            _check_dim_range(nnet, node)
    _check_dims(nnet)


def _repeated(names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Returns the names that occur several times, and how often."""
    return ((name, count) for name, count in Counter(names).items() if count > 1)


def _check_component_input_nodes(nnet: NetworkStructure) -> None:
    """Checks that component-input nodes and component nodes come in pairs."""
    for before, node in zip((None, *nnet.nodes), (*nnet.nodes, None), strict=True):
        if isinstance(before, ComponentInputNode) and not isinstance(node, ComponentNode):
            raise NetworkError(
                f"node '{before.name}' must be followed by its component node", node=before.name
            )
        if isinstance(node, ComponentNode) and (
            not isinstance(before, ComponentInputNode) or before.name != node.name + INPUT_SUFFIX
        ):
            raise NetworkError(
                f"component node '{node.name}' must follow a component-input node "
                f"'{node.name}{INPUT_SUFFIX}'",
                node=node.name,
            )


def _check_component_node(nnet: NetworkStructure, node: ComponentNode) -> None:
    if node.component not in nnet.component_indexes:
        raise NetworkError(
            f"node '{node.name}' refers to component '{node.component}', which does not exist",
            node=node.name,
        )


def _check_references(nnet: NetworkStructure, node: ComponentInputNode | OutputNode) -> None:
    for name in node.descriptor.node_names:
        if name not in nnet.node_indexes:
            raise NetworkError(
                f"node '{node.name}' refers to node '{name}', which does not exist",
                node=node.name,
            )
        if isinstance(nnet.node(name), ComponentInputNode | OutputNode):
            raise NetworkError(
                f"node '{node.name}' must take its input from input, component or dim-range "
                f"nodes ('{name}' is none)",
                node=node.name,
            )


def _check_dim_range(nnet: NetworkStructure, node: DimRangeNode) -> None:
    if node.source not in nnet.node_indexes or not isinstance(
        nnet.node(node.source), InputNode | ComponentNode
    ):
        raise NetworkError(
            f"dim-range node '{node.name}' must refer to an input or component node "
            f"('{node.source}' is none)",
            node=node.name,
        )
    source_dim = nnet.node_dim(node.source)
    if node.dim_offset + node.dim > source_dim:
        raise NetworkError(
            f"dim-range node '{node.name}' takes columns {node.dim_offset} to "
            f"{node.dim_offset + node.dim - 1}, but '{node.source}' has {source_dim}",
            node=node.name,
        )


def _check_dims(nnet: NetworkStructure) -> None:
    """Checks the dimensions of descriptors, and that components fit their input."""
    for node, follower in zip(nnet.nodes, (*nnet.nodes[1:], None), strict=True):
        if not isinstance(node, ComponentInputNode | OutputNode):
            continue
        try:
            dim = nnet.node_dim(node.name)
        except NetworkError as error:
            raise NetworkError(f"node '{node.name}': {error}", node=node.name) from error
        if not is_int32(dim):
            raise NetworkError(
                f"the dimension of node '{node.name}' must fit in 32 bits (got {dim})",
                node=node.name,
            )
        check_limit("dim", dim, f"the dimension of node '{node.name}'", node=node.name)
        if isinstance(follower, ComponentNode):
            wanted = nnet.component_of(follower).input_dim
            if dim != wanted:
                raise NetworkError(
                    f"the input of node '{follower.name}' has dimension {dim}, but its component "
                    f"'{follower.component}' takes {wanted}",
                    node=follower.name,
                )
