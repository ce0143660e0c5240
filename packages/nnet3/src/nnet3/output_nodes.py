"""Any node of a network as its output."""

from __future__ import annotations

import attrs
from nnet3_descriptors import (
    ComponentInputNode,
    Nnet,
    OutputNode,
    parse_descriptor,
)
from nnet3_descriptors.editing import remove_orphans
from nnet3_descriptors.similar_names import hint
from nnet3_runtime_cuda import RunError


def with_output(nnet: Nnet, name: str) -> Nnet:
    """The network whose only output, named 'output', is the value of a node.

    Args:
        nnet: The network.
        name: An output node, or another node, such as a layer.

    Raises:
        RunError: there is no such node.
    """
    nodes = {node.name: node for node in nnet.nodes if not isinstance(node, ComponentInputNode)}
    if name not in nodes:
        raise RunError(f"the network has no node '{name}'{hint(name, nodes)}")
    node = nodes[name]
    descriptor = node.descriptor if isinstance(node, OutputNode) else parse_descriptor(name)
    chosen = OutputNode(name="output", descriptor=descriptor)
    others = [each for each in nnet.nodes if not isinstance(each, OutputNode)]
    return remove_orphans(attrs.evolve(nnet, nodes=(*others, chosen)))
