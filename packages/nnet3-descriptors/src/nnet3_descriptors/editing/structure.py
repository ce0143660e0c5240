"""The structure of a network: loops, components by name, nodes that nothing needs."""

import fnmatch
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import attrs

from nnet3_descriptors import components, descriptors, errors
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
from nnet3_descriptors.structure import reached, strongly_connected_components


def loops(nnet: Nnet) -> dict[str, frozenset[str]]:
    """Returns for each node that depends on itself all nodes of its loop: those that also do.

    Two nodes are in one loop if each depends on the other.
    """
    names, number = nnet.node_names, nnet.node_indexes
    sources = [[number[name] for name in nnet.sources_of(node)] for node in nnet.nodes]
    found: dict[str, frozenset[str]] = {}
    for group in strongly_connected_components(sources):
        if len(group) > 1 or group[0] in sources[group[0]]:
            loop = frozenset(names[each] for each in group)
            found |= dict.fromkeys(loop, loop)
    return found


C = TypeVar("C", bound=components.Component)

_LOGGER: Final = logging.getLogger(__name__)


def matches(name: str, pattern: str) -> bool:
    """Tells whether a name matches a pattern in which "*" stands for any characters, or none.

    Raises:
        NetworkError: the pattern is no text.
    """
    if not isinstance(pattern, str):
        raise errors.NetworkError(f"expected a pattern of names, found {type(pattern).__name__}")
    only_stars = re.sub(r"[?\[]", r"[\g<0>]", pattern)
    return fnmatch.fnmatchcase(name, only_stars)


def warn_of_none(count: int, pattern: str, kind: str) -> None:
    """Logs a warning if a pattern has matched nothing.

    Args:
        count: The number found.
        pattern: The pattern.
        kind: The kind of thing that was sought.
    """
    if not count and pattern.strip("*"):
        _LOGGER.warning("Nothing is changed: no %s has a name like '%s'.", kind, pattern)


def named_components(nnet: Nnet, pattern: str) -> Iterator[tuple[str, components.Component]]:
    """Returns the components whose names match a pattern, with their names."""
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        if matches(name, pattern):
            yield name, component


def replace_components(
    nnet: Nnet, pattern: str, cls: type[C], change: Callable[[C], components.Component]
) -> tuple[Nnet, int]:
    """Returns the network with the components of a class changed, and their number.

    Args:
        nnet: The network.
        pattern: The names of the components that may be changed.
        cls: The class that they have, or that they are derived from.
        change: Gives the new component.
    """
    changed = {
        name: change(component)
        for name, component in named_components(nnet, pattern)
        if isinstance(component, cls)
    }
    return nnet.with_components(changed), len(changed)


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
    outputs = (node.name for node in nnet.output_nodes)
    needed = {*reached(outputs, lambda name: nnet.sources_of(nnet.node(name)))}
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
    return Nnet.of(kept, nnet.nodes)


def remove_output_nodes(nnet: Nnet, pattern: str) -> Nnet:
    """Returns the network without some outputs; `remove_orphans` removes the nodes only they used.

    Args:
        nnet: The network.
        pattern: The names of the outputs to remove; "*" stands for any characters.

    Raises:
        NetworkError: No output would be left.
    """
    removed = {node.name for node in nnet.output_nodes if matches(node.name, pattern)}
    if len(removed) == len(nnet.output_nodes):
        raise errors.NetworkError(f"the pattern '{pattern}' would remove all output nodes")
    _LOGGER.info("Removing %d output nodes.", len(removed))
    warn_of_none(len(removed), pattern, "output node")
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
