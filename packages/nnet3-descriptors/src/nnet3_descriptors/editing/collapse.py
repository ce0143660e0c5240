"""Folding components into the ones that follow them, for faster inference.

If the input of a component-node "b" has only values of one component node "a", at one or more time
offsets, these pairs are collapsed:

- dropout, in test mode, then a component with linear parameters: these are scaled;
- batch-norm, in test mode, then an affine, linear or TDNN component: its parameters absorb
  offset and scale;
- an affine map that does not reduce the dimension, then an affine component: the product;
- an affine component, then fixed scales: its rows are scaled.

"b" then applies the combined component to the input of "a", shifted by its own offsets. Nodes and
components that are no longer needed are removed. The outputs do not change, except for rounding.

The component that combines "a" and "b" is named "a.b", with a number behind it if there is another
component of that name.
"""

from itertools import chain, count

import attrs

from nnet3_descriptors import errors, indexes
from nnet3_descriptors.descriptors import Descriptor, ForwardingDescriptor, SumDescriptor
from nnet3_descriptors.descriptors.normalize import shifted
from nnet3_descriptors.editing.combine import CollapseOptions, combine
from nnet3_descriptors.editing.structure import remove_orphans
from nnet3_descriptors.network_structure import (
    INPUT_SUFFIX,
    ComponentInputNode,
    ComponentNode,
    Node,
)
from nnet3_descriptors.nnet import Nnet


def collapse_model(nnet: Nnet, options: CollapseOptions | None = None) -> Nnet:
    """Returns a network of fewer components that computes the same.

    Args:
        nnet: The network, in test mode (see `set_test_mode`) if dropout or batch-norm is to be
            collapsed.
        options: The pairs of components to collapse; by default all.

    Raises:
        NetworkError: A component that is to be collapsed is not in test mode.
    """
    collapser = _Collapser(nnet, CollapseOptions() if options is None else options)
    while collapser.collapse_once():
        pass
    return remove_orphans(collapser.network())


class _Collapser:
    """A network under reconstruction: nodes may change, components may be added."""

    def __init__(self, nnet: Nnet, options: CollapseOptions) -> None:
        self._options = options
        self._components = dict(zip(nnet.component_names, nnet.components, strict=True))
        self._combined_names: dict[tuple[str, str], str] = {}
        self._collapsed: set[tuple[str, str]] = set()  # nodes with their sources
        self._nodes: dict[str, Node] = {node.name: node for node in nnet.nodes}

    def network(self) -> Nnet:
        """Returns the network as it is now."""
        return Nnet(
            component_names=tuple(self._components),
            components=tuple(self._components.values()),
            nodes=tuple(self._nodes.values()),
        )

    def collapse_once(self) -> bool:
        """Collapses each node with its source if it can be; tells whether one was."""
        names = [node.name for node in self._nodes.values() if isinstance(node, ComponentNode)]
        collapsed = [name for name in names if self._collapse_node(name)]
        return bool(collapsed)

    def _collapse_node(self, name: str) -> bool:
        node, input_node = self._component_node(name), self._input_node(name)
        source_name = _only_source(input_node.descriptor)
        if source_name is None or (name, source_name) in self._collapsed:  # as in a cycle
            return False
        source = self._nodes[source_name]
        if not isinstance(source, ComponentNode):
            return False
        combined = self._combined(source.component, node.component)
        if combined is None:
            return False
        descriptor = _with_source_replaced(
            input_node.descriptor, self._input_node(source.name).descriptor
        )
        self._nodes[input_node.name] = attrs.evolve(input_node, descriptor=descriptor)
        self._nodes[name] = attrs.evolve(node, component=combined)
        self._collapsed.add((name, source_name))
        return True

    def _component_node(self, name: str) -> ComponentNode:
        node = self._nodes[name]
        assert isinstance(node, ComponentNode)
        return node

    def _input_node(self, name: str) -> ComponentInputNode:
        node = self._nodes[name + INPUT_SUFFIX]
        assert isinstance(node, ComponentInputNode)
        return node

    def _combined(self, first_name: str, second_name: str) -> str | None:
        """Returns the name of a component that does the work of two, if there can be one."""
        names = first_name, second_name
        if names in self._combined_names:
            return self._combined_names[names]
        first, second = self._components[first_name], self._components[second_name]
        try:
            combined = combine(first, second, self._options)
        except errors.NetworkError as error:
            raise errors.NetworkError(f"component '{first_name}': {error}") from error
        if combined is None or combined is second:
            return None if combined is None else second_name
        name = self._combined_names[names] = self._free_name(f"{first_name}.{second_name}")
        self._components[name] = combined
        return name

    def _free_name(self, wanted: str) -> str:
        """Returns a name that no component has: the wanted one, or with a number behind it."""
        names = chain([wanted], (f"{wanted}.{number}" for number in count(2)))
        return next(name for name in names if name not in self._components)


def _only_source(descriptor: Descriptor) -> str | None:
    """Returns the node that all parts take their values from at fixed offsets, unscaled."""
    sources = set()
    for part in descriptor.parts:
        if not isinstance(part, ForwardingDescriptor):
            return None
        shift = part.shift()
        if shift is None or part.scale(indexes.make_indexes(0, 0)) != 1.0:
            return None
        sources.add(shift[0])
    return sources.pop() if len(sources) == 1 else None


def _with_source_replaced(descriptor: Descriptor, source: Descriptor) -> Descriptor:
    """Returns a descriptor of one source node with the descriptor of that node put in its place."""
    parts: list[SumDescriptor] = []
    for part in descriptor.parts:
        assert isinstance(part, ForwardingDescriptor)
        shift = part.shift()
        assert shift is not None
        _, t_offset, x_offset = shift
        parts.extend(shifted(source_part, t_offset, x_offset) for source_part in source.parts)
    return Descriptor(tuple(parts))
