"""Affine maps that read one input at several times, as TDNN components.

A TDNN component reads the rows of its input where they are, where an affine map has them copied
beside each other first:

    affine: of Append(Offset(x, -3), x, Offset(x, 3))   =>   TDNN of x, with time offsets -3, 0, 3
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs
import numpy as np

from nnet3_descriptors import descriptors, errors
from nnet3_descriptors.components import LinearComponent, TdnnComponent
from nnet3_descriptors.components.rowwise.affine import AffineMap
from nnet3_descriptors.descriptors.normalize import shifted
from nnet3_descriptors.editing.loops import loops
from nnet3_descriptors.editing.structure import remove_orphan_components
from nnet3_descriptors.network_structure import ComponentInputNode, ComponentNode, Node
from nnet3_descriptors.nnet import Nnet

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
    changed = attrs.evolve(
        nnet,
        component_names=tuple(components),
        components=tuple(components.values()),
        nodes=tuple(nodes),
    )
    return remove_orphan_components(changed)


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
