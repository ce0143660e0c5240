"""The network passes for inference: affine maps are split, or become TDNN components.

Splitting affine maps lets a network compute once, outside of a loop, what the loop does not wait
for. A recurrent layer of Kaldi has two such places. Its gates are one affine map of the layer's
input beside its own output some frames before. And its cells' outputs are multiplied by two
matrices one below the other, of which one half goes back into the loop, and the other one only to
the layer above:

    gates: affine of Append(x, IfDefined(Offset(r, -3)))
    cells: LSTM of Append(gates, IfDefined(Offset(c, -3)))
    rp:    affine of m;  r: its first columns
    next:  affine of Append(Offset(rp, -3), rp)

becomes

    gates.feedforward: affine of x;  gates.recurrent: linear of IfDefined(Offset(r, -3))
    cells: LSTM of Append(Sum(gates.feedforward, gates.recurrent), IfDefined(Offset(c, -3)))
    rp.recurrent, rp.feedforward: affine of m;  r: the columns of rp.recurrent
    next:  affine of Append(Offset(rp.recurrent, -3), Offset(rp.feedforward, -3), ...)

So a step of the loop multiplies by fewer parameters, and one product of many rows does the rest.

A TDNN component reads the rows of its input where they are, where an affine map has them copied
beside each other first:

    affine: of Append(Offset(x, -3), x, Offset(x, 3))   =>   TDNN of x, with time offsets -3, 0, 3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import attrs
import numpy as np

from nnet3_descriptors import components, descriptors, errors
from nnet3_descriptors.components import LinearComponent, TdnnComponent
from nnet3_descriptors.components.affine import AffineMap
from nnet3_descriptors.descriptors.descriptor import shifted
from nnet3_descriptors.editing import collapse
from nnet3_descriptors.editing.structure import loops, remove_orphan_components
from nnet3_descriptors.frozen_arrays import frozen
from nnet3_descriptors.network_structure import (
    INPUT_SUFFIX,
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    Node,
    OutputNode,
)
from nnet3_descriptors.nnet import Nnet

RECURRENT, FEEDFORWARD = "recurrent", "feedforward"
"""What is appended to the names of the nodes of a loop, and of those outside."""


def split_affine_maps(nnet: Nnet) -> Nnet:
    """Returns a network that computes the same, with the affine maps of its loops split.

    A map whose input has parts from within its loop and parts from outside becomes two maps, whose
    outputs are added. A map of which the loop reads only some columns becomes one for these and one
    for those before or behind. A map whose output is read in another way stays as it is.
    """
    in_loop = loops(nnet)
    for node in nnet.nodes:
        if not isinstance(node, ComponentNode) or node.name not in in_loop:
            continue
        if isinstance(nnet.component_of(node), AffineMap):
            loop = in_loop[node.name]
            if split := _split_columns(nnet, node, loop) or _split_input(nnet, node, loop):
                nnet, in_loop = split, loops(split)
    return remove_orphan_components(nnet)


def _split_columns(nnet: Nnet, node: ComponentNode, loop: frozenset[str]) -> Nnet | None:
    """Splits a map of which its loop reads only some columns; None if it is no such map."""
    within = [reader for reader in _readers(nnet, node.name) if reader.name in loop]
    ranges = [reader for reader in within if isinstance(reader, DimRangeNode)]
    if len(ranges) < len(within):
        return None
    first = min(each.dim_offset for each in ranges)
    end = max(each.dim_offset + each.dim for each in ranges)
    suffixes = FEEDFORWARD, RECURRENT, f"{FEEDFORWARD}2"
    borders = 0, first, end, nnet.node_dim(node.name)
    spans = {
        f"{node.name}.{suffix}": span
        for suffix, span in zip(suffixes, pairwise(borders), strict=True)
        if span[0] < span[1]
    }
    changed = [_reading_columns(each, node.name, spans) for each in _readers(nnet, node.name)]
    if len(spans) == 1 or None in changed:
        return None
    affine, descriptor = nnet.component_of(node), nnet.input_of(node).descriptor
    maps = {name: (descriptor, _affine(affine, rows=slice(*span))) for name, span in spans.items()}
    return _replaced(nnet, node, maps, [each for each in changed if each is not None])


def _split_input(nnet: Nnet, node: ComponentNode, loop: frozenset[str]) -> Nnet | None:
    """Splits a map that reads its loop and other nodes side by side; None if it is no such map."""
    parts = nnet.input_of(node).descriptor.parts
    ends = accumulate((part.dim(nnet.node_dim) for part in parts), initial=0)
    columns = [slice(*span) for span in pairwise(ends)]
    groups: dict[str, list[int]] = {FEEDFORWARD: [], RECURRENT: []}
    for number, part in enumerate(parts):
        is_within = not loop.isdisjoint(part.node_names)
        groups[RECURRENT if is_within else FEEDFORWARD].append(number)
    if not groups[RECURRENT] or not any(parts[number].leaves for number in groups[FEEDFORWARD]):
        return None
    names = {f"{node.name}.{suffix}": numbers for suffix, numbers in groups.items()}
    changed = [_reading_sum(each, node.name, tuple(names)) for each in _readers(nnet, node.name)]
    for reader in changed:
        if reader is None:
            return None
        if isinstance(reader, ComponentInputNode) and reader.name == node.name + INPUT_SUFFIX:
            parts = reader.descriptor.parts  # the map reads its own output
    maps = {
        name: (
            descriptors.Descriptor(tuple(parts[number] for number in numbers)),
            _affine(
                nnet.component_of(node),
                columns=[columns[number] for number in numbers],
                with_bias=numbers is groups[FEEDFORWARD],
            ),
        )
        for name, numbers in names.items()
    }
    return _replaced(nnet, node, maps, [each for each in changed if each is not None])


def _affine(
    affine: components.Component,
    *,
    rows: slice = slice(None),
    columns: Sequence[slice] = (),
    with_bias: bool = True,
) -> components.Component:
    """Returns an affine map for some rows and columns of the matrix of another one, or all."""
    assert isinstance(affine, AffineMap)
    linear = affine.linear_params[rows]
    if columns:
        linear = frozen(np.hstack([linear[:, some] for some in columns]))
    if isinstance(affine, components.LinearComponent) or not with_bias:
        return components.LinearComponent(params=linear)
    return components.AffineComponent(linear_params=linear, bias_params=affine.bias_params[rows])


def _readers(nnet: Nnet, name: str) -> list[Node]:
    """Returns the nodes that read a component node."""
    return [node for node in nnet.nodes if name in nnet.sources_of(node)]


def _reading_columns(reader: Node, name: str, spans: Mapping[str, tuple[int, int]]) -> Node | None:
    """Returns a node that reads nodes for columns first <= c < end instead of one for all of them.

    None if it reads other ranges of columns, or adds something to all of them.
    """
    if isinstance(reader, DimRangeNode):
        for new, (first, end) in spans.items():
            if first <= reader.dim_offset and reader.dim_offset + reader.dim <= end:
                return attrs.evolve(reader, source=new, dim_offset=reader.dim_offset - first)
        return None
    assert isinstance(reader, ComponentInputNode | OutputNode)
    parts: list[descriptors.SumDescriptor] = []
    for part in reader.descriptor.parts:
        if name not in part.node_names:
            parts.append(part)
        elif part.node_names == (name,) and not part.has_constant:
            parts += [_renamed(part, name, new) for new in spans]
        else:
            return None
    return attrs.evolve(reader, descriptor=descriptors.Descriptor(tuple(parts)))


def _reading_sum(reader: Node, name: str, terms: tuple[str, ...]) -> Node | None:
    """Returns a node that reads the sum of two nodes instead of one; None if it cannot."""
    if isinstance(reader, DimRangeNode):
        return None
    assert isinstance(reader, ComponentInputNode | OutputNode)
    reads = [leaf.node_names for leaf in reader.descriptor.leaves]
    if any(name in names and len(names) > 1 for names in reads):
        return None  # a Switch, which takes its rows from single nodes

    def added(leaf: descriptors.ForwardingDescriptor) -> descriptors.SumDescriptor:
        if name not in leaf.node_names:
            return leaf
        return descriptors.Sum(*(_renamed(leaf, name, term) for term in terms))

    parts = tuple(part.map_leaves(added) for part in reader.descriptor.parts)
    return attrs.evolve(reader, descriptor=descriptors.Descriptor(parts))


def _renamed(part: descriptors.SumDescriptor, old: str, new: str) -> descriptors.SumDescriptor:
    """Returns a part that reads one node instead of another."""
    return part.map_leaves(
        lambda leaf: leaf.map_nodes(lambda name: descriptors.Node(new if name == old else name))
    )


def _replaced(
    nnet: Nnet,
    node: ComponentNode,
    maps: Mapping[str, tuple[descriptors.Descriptor, components.Component]],
    readers: Sequence[Node],
) -> Nnet | None:
    """Returns a network with affine maps in the place of one, and readers that read these.

    Args:
        nnet: The network.
        node: The node to replace.
        maps: The input and the component of each new node, by name.
        readers: The changed readers.

    Returns:
        The network; None if a name is taken.
    """
    taken = {*nnet.node_names, *nnet.component_names}
    if any(not taken.isdisjoint((name, name + INPUT_SUFFIX)) for name in maps):
        return None
    changed = {reader.name: reader for reader in readers}
    nodes: list[Node] = []
    for old in nnet.nodes:
        if old.name == node.name:
            for name, (descriptor, _) in maps.items():
                nodes.append(ComponentInputNode(name=name + INPUT_SUFFIX, descriptor=descriptor))
                nodes.append(ComponentNode(name=name, component=name))
        elif old.name != node.name + INPUT_SUFFIX:
            nodes.append(changed.get(old.name, old))
    components = dict(zip(nnet.component_names, nnet.components, strict=True))
    return Nnet.of(components | {name: component for name, (_, component) in maps.items()}, nodes)


WIDEST_GAP = 16
"""Most frames from one time offset to the next: TDNN components have a row for each between."""


def affine_to_tdnn(nnet: Nnet) -> Nnet:
    """Returns a network that computes the same, with TDNN components where affine maps splice.

    These are affine and linear maps outside of loops whose input is made of the same parts at
    several times, in this order. The component has the name of the map, or of its node if another
    node uses the map, too.
    """
    in_loop = loops(nnet)
    components = dict(zip(nnet.component_names, nnet.components, strict=True))
    uses = [node.component for node in nnet.nodes if isinstance(node, ComponentNode)]
    nodes: list[Node] = []
    for node in nnet.nodes:
        if isinstance(node, ComponentNode) and node.name not in in_loop:
            input_node, component = nodes[-1], nnet.component_of(node)
            assert isinstance(input_node, ComponentInputNode)
            found = spliced(input_node.descriptor.parts)
            is_only = uses.count(node.component) == 1
            name = node.component if is_only else node.name
            is_free = is_only or name not in components
            if found is not None and is_free and isinstance(component, AffineMap):
                parts, time_offsets = found
                components[name] = _tdnn(component, time_offsets)
                nodes[-1] = attrs.evolve(input_node, descriptor=descriptors.Descriptor(parts))
                node = attrs.evolve(node, component=name)
        nodes.append(node)
    return remove_orphan_components(Nnet.of(components, nodes))


def spliced(
    parts: Sequence[descriptors.SumDescriptor],
) -> tuple[tuple[descriptors.SumDescriptor, ...], tuple[int, ...]] | None:
    """Returns the parts that others repeat at several times, and the time offsets.

    None if the parts are not of this kind, or if times lie far apart.
    """
    times = [_time(part) for part in parts]
    for size in range(1, len(parts) // 2 + 1):
        offsets = times[::size]
        gaps = [later - earlier for earlier, later in pairwise(sorted(offsets))]
        if len(parts) % size or min(gaps) < 1 or max(gaps) > WIDEST_GAP:
            continue
        try:
            base = tuple(shifted(part, -offsets[0]) for part in parts[:size])
            made = [shifted(part, offset) for offset in offsets for part in base]
        except errors.NetworkError:  # a time beyond 32 bits
            continue
        if made == list(parts):
            return base, tuple(offsets)
    return None


def _time(part: descriptors.SumDescriptor) -> int:
    """Returns the offset in time of the first leaf of a part; 0 if there is none."""
    leaf = next(iter(part.leaves), None)
    return leaf.t_offset if isinstance(leaf, descriptors.Offset) else 0


def _tdnn(affine: AffineMap, time_offsets: tuple[int, ...]) -> TdnnComponent:
    no_bias = np.empty(0, np.float32)
    return TdnnComponent(
        time_offsets=time_offsets,
        linear_params=affine.linear_params,
        bias_params=no_bias if isinstance(affine, LinearComponent) else affine.bias_params,
    )


def for_inference(nnet: Nnet) -> Nnet:
    """Returns a network that computes the same in less time, except for rounding.

    Components are folded into others (`collapse_model`), affine maps of loops are split
    (`split_affine_maps`), and those that splice become TDNN components (`affine_to_tdnn`).

    Args:
        nnet: The network, in test mode (see `set_test_mode`).

    Raises:
        NetworkError: A component that is to be folded is not in test mode.
    """
    return affine_to_tdnn(split_affine_maps(collapse.collapse_model(nnet)))
