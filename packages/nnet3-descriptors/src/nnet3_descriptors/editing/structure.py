"""Removing and renaming nodes, and removing unused nodes and components."""

import logging
from collections.abc import Collection, Mapping

import attrs

from nnet3_descriptors import descriptors, errors
from nnet3_descriptors.editing import loops, selection
from nnet3_descriptors.network_structure import (
    INPUT_SUFFIX,
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Node,
    OutputNode,
)
from nnet3_descriptors.nnet import Nnet

_LOGGER = logging.getLogger(__name__)


def remove_orphans(nnet: Nnet, *, remove_orphan_inputs: bool = False) -> Nnet:
    """Returns the network without nodes and components that no output needs.

    Args:
        nnet: The network.
        remove_orphan_inputs: Remove input nodes as well.

    Raises:
        NetworkError: No input node would be left.
    """
    without = remove_orphan_nodes(nnet, remove_orphan_inputs=remove_orphan_inputs)
    return remove_orphan_components(without)


def remove_orphan_nodes(nnet: Nnet, *, remove_orphan_inputs: bool = False) -> Nnet:
    """Returns the network without the nodes that no output needs.

    Args:
        nnet: The network.
        remove_orphan_inputs: Remove input nodes as well.

    Raises:
        NetworkError: No input node would be left.
    """
    needed = _needed_nodes(nnet)
    kept = tuple(
        node
        for node in nnet.nodes
        if node.name in needed or (isinstance(node, InputNode) and not remove_orphan_inputs)
    )
    removed = {node.name for node in nnet.nodes} - {node.name for node in kept}
    shown = [name for name in removed if not isinstance(nnet.node(name), ComponentInputNode)]
    _LOGGER.info("Removed %d orphan nodes.", len(shown))
    return attrs.evolve(nnet, nodes=kept)


def remove_orphan_components(nnet: Nnet) -> Nnet:
    """Returns the network without the components that no node applies."""
    used = {node.component for node in nnet.nodes if isinstance(node, ComponentNode)}
    kept = {
        name: component
        for name, component in zip(nnet.component_names, nnet.components, strict=True)
        if name in used
    }
    _LOGGER.info("Removing %d orphan components.", len(nnet.components) - len(kept))
    return attrs.evolve(nnet, component_names=tuple(kept), components=tuple(kept.values()))


def remove_output_nodes(nnet: Nnet, pattern: str) -> Nnet:
    """Returns the network without some outputs; `remove_orphans` removes the nodes only they used.

    Args:
        nnet: The network.
        pattern: The names of the outputs to remove; "*" stands for any characters.

    Raises:
        NetworkError: No output would be left.
    """
    removed = {node.name for node in nnet.output_nodes if selection.matches(node.name, pattern)}
    if len(removed) == len(nnet.output_nodes):
        raise errors.NetworkError(f"the pattern '{pattern}' would remove all output nodes")
    _LOGGER.info("Removing %d output nodes.", len(removed))
    selection.warn_of_none(len(removed), pattern, "output node")
    return attrs.evolve(nnet, nodes=tuple(node for node in nnet.nodes if node.name not in removed))


def rename_node(nnet: Nnet, old_name: str, new_name: str) -> Nnet:
    """Returns the network with a node, and all references to it, renamed.

    Args:
        nnet: The network.
        old_name: Name of an input, component, dim-range or output node.
        new_name: The new name, which no node has.

    Raises:
        NetworkError: There is no such node, or the new name is taken or not valid.
    """
    node = nnet.node(old_name)
    if isinstance(node, ComponentInputNode):
        raise errors.NetworkError(
            f"'{old_name}' is named after its component node, which is to be renamed instead"
        )
    if new_name in nnet.node_indexes:
        raise errors.NetworkError(f"there is a node '{new_name}' already")
    names = {old_name: new_name}
    if isinstance(node, ComponentNode):
        names[old_name + INPUT_SUFFIX] = new_name + INPUT_SUFFIX
    renamed = tuple(
        attrs.evolve(renamed_references(node, names), name=names.get(node.name, node.name))
        for node in nnet.nodes
    )
    return attrs.evolve(nnet, nodes=renamed)


def renamed_references(node: Node, names: Mapping[str, str]) -> Node:
    """Returns a node that refers to other nodes by their new names.

    Args:
        node: The node; its own name stays.
        names: New names by old names; a name that it lacks stays.
    """
    match node:
        case DimRangeNode():
            return attrs.evolve(node, source=names.get(node.source, node.source))
        case ComponentInputNode() | OutputNode():
            descriptor = node.descriptor.map_nodes(
                lambda name: descriptors.Node(names.get(name, name))
            )
            return attrs.evolve(node, descriptor=descriptor)
    return node


def _needed_nodes(nnet: Nnet) -> Collection[str]:
    """Returns the nodes from which an output can be reached."""
    sources = {node.name: loops.sources_of(node) for node in nnet.nodes}
    return loops.reached((node.name for node in nnet.output_nodes), sources)
