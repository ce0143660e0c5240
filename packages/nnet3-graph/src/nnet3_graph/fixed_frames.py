"""Reads of features at a fixed time, which do not move with the output."""

from __future__ import annotations

from collections.abc import Sequence

from nnet3_descriptors import ComponentInputNode, Nnet, OutputNode
from nnet3_descriptors.descriptors import ReplaceIndex

from nnet3_graph.nodes.order import node_users
from nnet3_graph.nodes.rules import node_rules


def fixed_frame(nnet: Nnet) -> str | None:
    """Says that the output reads features at a fixed time, as "'a' reads ReplaceIndex(..), ...".

    What reads only i-vectors, through ReplaceIndex(ivector, t, 0), does not count: a chunk has an
    i-vector for all of its frames.

    Args:
        nnet: The network; its nodes have the conventional names "input", "ivector" and "output".

    Returns:
        The sentence, for an error; None if every frame is read at a distance from the output's.
    """
    needed = _reached(nnet, "output", [rule.sources for rule in node_rules(nnet).rules])
    of_features = _reached(nnet, "input", node_users(nnet))
    for node in nnet.nodes:
        if node.name not in needed or not isinstance(node, ComponentInputNode | OutputNode):
            continue
        pending = [leaf for part in node.descriptor.parts for leaf in part.leaves]
        while pending:
            read = pending.pop()
            pending += read.sources
            is_fixed = isinstance(read, ReplaceIndex) and read.variable == "t"
            if is_fixed and not of_features.isdisjoint(read.node_names):
                return f"'{node.name}' reads {read}, which would be another frame in each chunk"
    return None


def _reached(nnet: Nnet, name: str, edges: Sequence[Sequence[int]]) -> set[str]:
    """Returns the nodes that edges lead to from a node, itself included; none if it is missing."""
    pending = [number for number, node in enumerate(nnet.node_names) if node == name]
    seen = {*pending}
    while pending:
        following = {*edges[pending.pop()]} - seen
        seen |= following
        pending += following
    return {nnet.node_names[number] for number in seen}
