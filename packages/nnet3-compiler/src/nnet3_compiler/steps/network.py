"""What the compiler has to know of a network, as arrays over its nodes."""

from __future__ import annotations

import enum

import attrs
import numpy as np
from nnet3_descriptors import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    Nnet,
    OutputNode,
)
from nnet3_descriptors.components.properties import ComponentProperties
from nnet3_descriptors.descriptors import Descriptor, SumDescriptor
from nnet3_descriptors.remembering import remembered
from numpy.typing import NDArray

from nnet3_compiler.arrays import IntArray, freeze


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
        source: (nodes,) int32, the node of which a dim-range node shows columns; else -1.
        dim_offset: (nodes,) int32, the first of those columns.
        component: (nodes,) int32, the component of a component node; else -1.
        properties: (nodes,) int32, its `ComponentProperties`.
        is_updated: (nodes,) bool, whether training changes the component: it has parameters, and
            a learning rate that is not 0.
        descriptors: The descriptor of component-input and output nodes; else None.
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
    part_begin: IntArray
    part_offset: IntArray
    part_dim: IntArray

    @staticmethod
    @remembered
    def of(nnet: Nnet) -> Network:
        """Returns the arrays of a network; worked out once for each."""
        size = len(nnet.nodes)
        columns = {name: np.full(size, -1, np.int32) for name in ("source", "component")}
        columns |= {
            name: np.zeros(size, np.int32) for name in ("kind", "dim", "dim_offset", "properties")
        }
        is_updated = np.zeros(size, np.bool_)
        descriptors: list[Descriptor | None] = [None] * size
        for number, node in enumerate(nnet.nodes):
            kind = NodeKind.INPUT
            match node:
                case ComponentNode():
                    kind = NodeKind.COMPONENT
                    component = nnet.component_of(node)
                    properties = component.properties
                    columns["component"][number] = nnet.component_index(node.component)
                    columns["properties"][number] = properties
                    columns["dim"][number] = component.output_dim
                    if properties & ComponentProperties.UPDATABLE:
                        is_updated[number] = getattr(component, "learning_rate", 0.0) != 0.0
                case DimRangeNode():
                    kind = NodeKind.DIM_RANGE
                    columns["source"][number] = nnet.node_index(node.source)
                    columns["dim_offset"][number] = node.dim_offset
                    columns["dim"][number] = node.dim
                case ComponentInputNode() | OutputNode():
                    is_output = isinstance(node, OutputNode)
                    kind = NodeKind.OUTPUT if is_output else NodeKind.COMPONENT_INPUT
                    descriptors[number] = node.descriptor
                case _:
                    columns["dim"][number] = node.dim
            columns["kind"][number] = kind
        parts = _part_dims(nnet, descriptors, columns["dim"])
        for number, dims in parts.items():
            columns["dim"][number] = sum(dims)
        counts = [len(parts.get(number, ())) for number in range(size)]
        part_dim = np.array([dim for dims in parts.values() for dim in dims], np.int32)
        part_begin = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        before = np.concatenate([[0], np.cumsum(part_dim)])
        part_offset = (before[:-1] - np.repeat(before[part_begin[:-1]], counts)).astype(np.int32)
        return Network(
            nnet=nnet,
            descriptors=tuple(descriptors),
            is_updated=is_updated,
            part_begin=freeze(part_begin),
            part_offset=freeze(part_offset),
            part_dim=freeze(part_dim),
            **{name: freeze(column) for name, column in columns.items()},
        )

    def has(self, properties: ComponentProperties) -> NDArray[np.bool_]:
        """Returns for which nodes the component has these properties: (nodes,) bool."""
        has: NDArray[np.bool_] = self.properties & int(properties) != 0
        return has

    @property
    def num_parts(self) -> IntArray:
        """Number of parts of each descriptor: (nodes,) int32."""
        return np.diff(self.part_begin)


def _part_dims(
    nnet: Nnet, descriptors: list[Descriptor | None], dim: IntArray
) -> dict[int, tuple[int, ...]]:
    """Returns the dimensions of the parts of each descriptor.

    The network has checked that the terms of a part agree, so the first one tells.
    """
    position = nnet.node_indexes

    def part_dim(part: SumDescriptor) -> int:
        leaves = part.leaves
        if leaves:
            return int(dim[position[leaves[0].node_names[0]]])
        return part.dim(nnet.node_dim)

    return {
        number: tuple(part_dim(part) for part in descriptor.parts)
        for number, descriptor in enumerate(descriptors)
        if descriptor is not None
    }
