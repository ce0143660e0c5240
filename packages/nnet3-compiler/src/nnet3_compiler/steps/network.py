"""The facts about a network and its graphs that the compiler needs, as arrays; epochs and phases.

Nodes that depend on each other (a recurrence) form one strongly connected component of the node
graph, and share an epoch. Epochs are ordered so that a node depends only on nodes of its own epoch
or of earlier ones.

Phases are an order in which the cindexes can be computed. Inputs come first, then the epochs one
after another. Within the epoch of a recurrence a cindex belongs to the phase whose number, its
*level*, is the length of the longest chain of dependencies that leads to it inside the epoch (and
the segment).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import attrs
import numpy as np
from nnet3_computation import ComputationRequest
from nnet3_computation.arrays import IntArray, expand_ranges, frozen_array, where
from nnet3_descriptors import ComponentInputNode, ComponentNode, DimRangeNode, Nnet, OutputNode
from nnet3_descriptors.components import ComponentProperties
from nnet3_descriptors.descriptors import Descriptor, Node, SumDescriptor
from nnet3_descriptors.structure import (
    NetworkFingerprint,
    component_dims,
    component_properties,
    updated_components,
)
from nnet3_descriptors.values import frozen, remembered
from nnet3_graph import ComputationGraph
from nnet3_graph.nodes import node_groups
from numpy.typing import NDArray

from nnet3_compiler.errors import CompilationError


class NodeKind(enum.IntEnum):
    """The kinds of nodes."""

    INPUT = 0
    COMPONENT_INPUT = 1
    COMPONENT = 2
    DIM_RANGE = 3
    OUTPUT = 4


class Network(NamedTuple):
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
        copied=frozen(np.array([_copied(nnet, each) for each in descriptors], np.int32)),
        # Nodes without component (-1) find the last entry, which stands for none.
        properties=frozen(np.append(component_properties(nnet), np.int32(0))[component]),
        is_updated=np.append(updated_components(nnet), np.False_)[component],
        part_begin=frozen(part_begin),
        part_offset=frozen(part_offset),
        part_dim=frozen(part_dim),
        **{name: frozen(np.array(column, np.int32)) for name, column in columns},
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


@attrs.frozen(kw_only=True, eq=False)
class Graphs:
    """The pruned graphs of the segments; cindex ids count through all of them.

    Attributes:
        segments: The graph of each segment; each but the first reads from the one before.
    """

    segments: Sequence[ComputationGraph]
    _leaf_ids: dict[tuple[int, int], tuple[IntArray, ...]] = attrs.field(factory=dict, init=False)

    @property
    def size(self) -> int:
        """Number of cindexes of all segments."""
        return self.segments[-1].segment_ends[-1]

    @cached_property
    def cindexes(self) -> IntArray:
        """All cindexes: (cindexes, 4) int32, columns node, n, t, x."""
        if len(self.segments) == 1:
            return self.segments[0].cindexes
        return np.concatenate([graph.cindexes for graph in self.segments])

    def leaf_ids(self, segment: int, node: int) -> tuple[IntArray, ...]:
        """The result of `ComputationGraph.leaf_ids`, remembered, because recurrences ask twice."""
        found = self._leaf_ids.get((segment, node))
        if found is None:
            found = self._leaf_ids[segment, node] = self.segments[segment].leaf_ids(node)
        return found

    def computed(self, segment: int, node: int) -> IntArray | slice:
        """Returns the cindex ids of the rows of a node that the user does not give.

        Returns:
            A slice of ids, or an array of them, ascending.
        """
        graph = self.segments[segment]
        ids = graph.node_range(node)
        if not graph.given_sets[node].bits:
            return ids
        computed: IntArray = where(~graph.is_given(node)).astype(np.int32) + ids.start
        return computed


def check_graph(nnet: Nnet, request: ComputationRequest, graph: ComputationGraph) -> None:
    """Checks that a graph is that of a network and a request.

    The check trusts a pruned graph to hold the rows that its outputs depend on.

    Raises:
        CompilationError: It is of another network, is not pruned, or gives or wants other rows.
    """
    if graph.nnet is not nnet:
        difference = NetworkFingerprint.of(graph.nnet).difference(nnet)
        if difference is not None:
            raise CompilationError(f"the graph is of another network: {difference}")
    if not graph.is_pruned or graph.previous is not None:
        raise CompilationError("the graph must be pruned, and the only segment")
    wanted = {nnet.node_index(io.name): io.indexes for io in request.outputs}
    given = {nnet.node_index(io.name): io.indexes for io in request.inputs}
    is_output = {nnet.node_index(node.name) for node in nnet.output_nodes}
    for node, name in enumerate(nnet.node_names):
        for what, asked, rows in (
            ("given", given.get(node), graph.given_sets[node]),
            ("wanted", wanted.get(node), graph.index_sets[node] if node in is_output else None),
        ):
            if rows is None:
                continue
            found = np.zeros(0, np.int32) if asked is None else rows.find(asked)
            if len(found) != len(rows) or (found < 0).any():
                raise CompilationError(
                    f"the graph is of another request: the rows that are {what} of '{name}' differ"
                )


@attrs.frozen(kw_only=True, eq=False)
class Epochs:
    """The epoch of each node.

    Attributes:
        of_node: (nodes,) int32, counted from 0.
        is_recurrent: (nodes,) bool, whether the epoch has several nodes.
    """

    of_node: IntArray = attrs.field(converter=frozen_array)
    is_recurrent: NDArray[np.bool_]

    @cached_property
    def count(self) -> int:
        """Number of epochs."""
        return int(self.of_node.max()) + 1


@remembered
def compute_epochs(nnet: Nnet) -> Epochs:
    """Returns the epochs of a network's nodes; those of `node_groups`, in that order."""
    groups = node_groups(nnet)
    sizes = [len(group) for group in groups]
    of_node = np.empty(len(nnet.nodes), np.int32)
    nodes = [node for group in groups for node in group]
    of_node[nodes] = np.repeat(np.arange(len(groups)), sizes)
    return Epochs(of_node=frozen(of_node), is_recurrent=np.array(sizes)[of_node] > 1)


_Number = TypeVar("_Number", int, IntArray)

GIVEN = -1
"""The epoch of inputs."""


class Phases(NamedTuple):
    """The order of phases; phases with lower numbers can be computed first.

    Attributes:
        epochs: The epochs of the nodes.
        level: (cindexes,) int64, the level of each cindex; 0 outside recurrences.
        num_levels: One more than the largest level.
    """

    epochs: Epochs
    level: NDArray[np.int64]
    num_levels: int

    def number(self, segment: int, epoch: _Number) -> _Number:
        """Returns the number of the phase of level 0; those of other levels follow."""
        return (segment * (self.epochs.count + 1) + epoch + 1) * self.num_levels


def compute_phases(network: Network, epochs: Epochs, graphs: Graphs) -> Phases:
    """Returns the phases of a computation.

    Raises:
        CompilationError: Cindexes depend on each other in a circle.
    """
    level = np.zeros(graphs.size, np.int64)
    nodes = where(epochs.is_recurrent).tolist()
    for segment in range(len(graphs.segments)) if nodes else ():
        _find_levels(network, epochs, graphs, segment, nodes, level)
    return Phases(epochs=epochs, level=level, num_levels=int(level.max(initial=0)) + 1)


def _find_levels(
    network: Network,
    epochs: Epochs,
    graphs: Graphs,
    segment: int,
    nodes: list[int],
    level: NDArray[np.int64],
) -> None:
    """Fills in the levels of the cindexes of recurrent nodes in a segment."""
    epoch = np.full(graphs.size, GIVEN, np.int64)
    for node in nodes:
        epoch[graphs.computed(segment, node)] = epochs.of_node[node]
    members = where(epoch != GIVEN)
    user, used = _dependencies(network, graphs, segment, nodes)
    inside = (used >= 0) & (epoch[user] == epoch[used])
    local = np.full(graphs.size, -1, np.int64)
    local[members] = np.arange(len(members))
    found = _longest_chains(len(members), local[user[inside]], local[used[inside]])
    if (found < 0).any():
        node, n, t, x = graphs.cindexes[members[np.argmin(found)]].tolist()
        raise CompilationError(
            f"node '{network.nnet.nodes[node].name}' at (n, t, x) = ({n}, {t}, {x}) depends on "
            "itself: no order of computation works for this recurrence"
        )
    level[members] = found


def _dependencies(
    network: Network, graphs: Graphs, segment: int, nodes: list[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the direct dependencies of the cindexes of some nodes, some maybe repeated.

    Returns:
        (arcs,) the cindex that depends on another, and (arcs,) that other one; -1 for none.
    """
    graph = graphs.segments[segment]
    kind, source = network.kind.tolist(), network.source.tolist()
    is_simple = network.has(ComponentProperties.SIMPLE).tolist()
    users: list[IntArray] = []
    used: list[IntArray] = []
    begins: list[int] = []  # of the ranges of ids that depend on what is in `used`, ...
    counts: list[int] = []  # ... and how many each has
    listed: list[IntArray] = []
    for node in nodes:
        ids = graph.node_range(node)
        rows = ids.stop - ids.start
        tables: tuple[IntArray, ...]
        if kind[node] == NodeKind.DIM_RANGE:
            tables = (graph.moved_ids(source[node], node, 0, 0)[None],)
        elif kind[node] != NodeKind.COMPONENT:
            tables = graphs.leaf_ids(segment, node)
        elif is_simple[node] and not graph.given_sets[node].bits:
            tables = (graph.moved_ids(node - 1, node, 0, 0)[None],)
        else:
            splits, inputs = graph.component_inputs(node)
            users.append(np.repeat(np.arange(ids.start, ids.stop), splits[1:] - splits[:-1]))
            listed.append(inputs)
            continue
        for table in tables:
            used.append(table.reshape(-1))
            begins += [ids.start] * len(table)
            counts += [rows] * len(table)
    ranges = expand_ranges(np.array(begins, np.int64), np.array(counts, np.int64))
    return np.concatenate([ranges, *users]), np.concatenate([*used, *listed])


def _longest_chains(
    size: int, user: NDArray[np.int64], used: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the length of the longest chain that leads to each vertex; -1 on a circle.

    Args:
        size: Number of vertices.
        user: (arcs,) the vertex that depends on...
        used: (arcs,) ... this one.
    """
    order = np.argsort(used, kind="stable")
    begins = np.searchsorted(used[order], np.arange(size + 1)).tolist()
    users = user[order].tolist()
    missing = np.bincount(user, minlength=size).tolist()
    levels = [-1] * size
    ready = [vertex for vertex in range(size) if not missing[vertex]]
    level = 0
    while ready:
        following = []
        for vertex in ready:
            levels[vertex] = level
            for successor in users[begins[vertex] : begins[vertex + 1]]:
                missing[successor] -= 1
                if not missing[successor]:
                    following.append(successor)
        ready = following
        level += 1
    return np.array(levels, np.int64)
