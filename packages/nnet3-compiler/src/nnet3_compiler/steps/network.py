"""The facts about a network that the compiler needs, as arrays over its nodes."""

from __future__ import annotations

import enum
from typing import Any

import attrs
import numpy as np
from nnet3_computation.arrays import IntArray, freeze
from nnet3_descriptors import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    Nnet,
    OutputNode,
)
from nnet3_descriptors.components import ComponentProperties
from nnet3_descriptors.descriptors import Descriptor, Node, SumDescriptor
from nnet3_descriptors.structure import (
    component_dims,
    component_properties,
    updated_components,
)
from nnet3_descriptors.values import remembered
from numpy.typing import NDArray


class NodeKind(enum.IntEnum):
    """The kinds of nodes."""

    INPUT = 0
    COMPONENT_INPUT = 1
    COMPONENT = 2
    DIM_RANGE = 3
    OUTPUT = 4


@attrs.frozen(kw_only=True, eq=False)
class Network:
    """A network's nodes as arrays; -1 or 0 where something does not apply to a node.

    Attributes:
        nnet: The network.
        kind: (nodes,) int32, values of `NodeKind`.
        dim: (nodes,) int32, number of columns.
        source: (nodes,) int32, for a dim-range node the node whose columns it shows; else -1.
        dim_offset: (nodes,) int32, the first of those columns.
        component: (nodes,) int32, the component of a component node; else -1.
        properties: (nodes,) int32, its `ComponentProperties`.
        is_updated: (nodes,) bool, whether training changes the component: it has parameters, and
            a learning rate that is not 0.
        descriptors: The descriptor of component-input and output nodes; else None.
        copied: (nodes,) int32, the node that the descriptor names, if it is only a name, so that
            its value is a copy; else -1.
        part_begin: (nodes + 1,) int32, where the parts of each descriptor begin in `part_offset`.
        part_offset: (parts,) int32, the first column of each part.
        part_dim: (parts,) int32, number of columns of each part.
    """

    nnet: Nnet
    kind: IntArray
    dim: IntArray
    source: IntArray
    dim_offset: IntArray
    component: IntArray
    properties: IntArray
    is_updated: NDArray[np.bool_]
    descriptors: tuple[Descriptor | None, ...]
    copied: IntArray
    part_begin: IntArray
    part_offset: IntArray
    part_dim: IntArray

    @staticmethod
    def of(nnet: Nnet) -> Network:
        """Returns the arrays of a network; they are computed once for each network."""
        return Network(nnet=nnet, **_columns(nnet))

    def has(self, properties: ComponentProperties) -> NDArray[np.bool_]:
        """Returns for which nodes the component has these properties: (nodes,) bool."""
        has: NDArray[np.bool_] = self.properties & int(properties) != 0
        return has

    @property
    def num_parts(self) -> IntArray:
        """Number of parts of each descriptor: (nodes,) int32."""
        return np.diff(self.part_begin)


@remembered
def _columns(nnet: Nnet) -> dict[str, Any]:
    """Returns the fields of a `Network` without the network, which a cache would keep alive."""
    size = len(nnet.nodes)
    names = ("source", "component", "kind", "dim", "dim_offset")
    source, used, kind, dim, dim_offset = ([0] * size for _ in names)
    descriptors: list[Descriptor | None] = [None] * size
    components, output_dims = nnet.component_indexes, component_dims(nnet)[1].tolist()
    for number, node in enumerate(nnet.nodes):
        source[number] = used[number] = -1
        match node:
            case ComponentNode():
                kind[number] = NodeKind.COMPONENT
                used[number] = components[node.component]
                dim[number] = output_dims[used[number]]
            case DimRangeNode():
                kind[number] = NodeKind.DIM_RANGE
                source[number] = nnet.node_index(node.source)
                dim_offset[number], dim[number] = node.dim_offset, node.dim
            case ComponentInputNode():
                kind[number], descriptors[number] = NodeKind.COMPONENT_INPUT, node.descriptor
            case OutputNode():
                kind[number], descriptors[number] = NodeKind.OUTPUT, node.descriptor
            case _:
                dim[number] = node.dim
    parts = _part_dims(nnet, descriptors, dim)
    for number, dims in parts.items():
        dim[number] = sum(dims)
    counts = [len(parts.get(number, ())) for number in range(size)]
    part_dim = np.array([dim for dims in parts.values() for dim in dims], np.int32)
    part_begin = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    before = np.concatenate([[0], np.cumsum(part_dim)])
    part_offset = (before[:-1] - np.repeat(before[part_begin[:-1]], counts)).astype(np.int32)
    component = np.array(used, np.int32)
    columns = zip(names, (source, component, kind, dim, dim_offset), strict=True)
    return dict(
        descriptors=tuple(descriptors),
        copied=freeze(np.array([_copied(nnet, each) for each in descriptors], np.int32)),
        # Nodes without component (-1) find the last entry, which stands for none.
        properties=freeze(np.append(component_properties(nnet), np.int32(0))[component]),
        is_updated=np.append(updated_components(nnet), np.False_)[component],
        part_begin=freeze(part_begin),
        part_offset=freeze(part_offset),
        part_dim=freeze(part_dim),
        **{name: freeze(np.array(column, np.int32)) for name, column in columns},
    )


def _copied(nnet: Nnet, descriptor: Descriptor | None) -> int:
    """Returns the node that a descriptor names, if it is only a name; else -1."""
    if descriptor is None or len(descriptor.parts) > 1:
        return -1
    part = descriptor.parts[0]
    return nnet.node_indexes[part.name] if isinstance(part, Node) else -1


def _part_dims(
    nnet: Nnet, descriptors: list[Descriptor | None], dim: list[int]
) -> dict[int, tuple[int, ...]]:
    """Returns the dimensions of the parts of each descriptor.

    The network has checked that the terms of a part agree, so the first one tells.
    """
    position = nnet.node_indexes

    def part_dim(part: SumDescriptor) -> int:
        if isinstance(part, Node):
            return dim[position[part.name]]
        leaves = part.leaves
        if leaves:
            return dim[position[leaves[0].node_names[0]]]
        return part.dim(nnet.node_dim)

    return {
        number: tuple(part_dim(part) for part in descriptor.parts)
        for number, descriptor in enumerate(descriptors)
        if descriptor is not None
    }
