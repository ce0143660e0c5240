"""Recurrences that have no beginning, for the message that nothing can be computed."""

from __future__ import annotations

from nnet3_descriptors.descriptors import leaves_of
from nnet3_descriptors.network_structure import NetworkStructure
from nnet3_descriptors.nodes import ComponentInputNode, ComponentNode, DimRangeNode, OutputNode


def endless_recurrence(nnet: NetworkStructure) -> tuple[str, ...]:
    """Returns nodes of which each needs the next, and the last the first; none if there are none.

    Nodes below IfDefined or Failover are not needed.
    """
    needed = {name: _needed(nnet, name) for name in nnet.node_indexes}
    done: set[str] = set()
    for start in needed:
        path: list[str] = []
        left = [iter((start,))]
        while left:
            name = next(left[-1], None)
            if name is None:
                left.pop()
                done.update(path[-1:])
                del path[-1:]
            elif name in path:
                cycle = path[path.index(name) :]
                return tuple(
                    each for each in cycle if not isinstance(nnet.node(each), ComponentInputNode)
                )
            elif name not in done:
                path.append(name)
                left.append(iter(needed[name]))
    return ()


def _needed(nnet: NetworkStructure, name: str) -> tuple[str, ...]:
    """Returns the nodes that a node cannot do without."""
    node = nnet.node(name)
    if isinstance(node, ComponentInputNode | OutputNode):
        leaves = leaves_of(node.descriptor)
        return tuple(
            each for leaf, is_optional in leaves if not is_optional for each in leaf.node_names
        )
    if isinstance(node, ComponentNode):
        return (nnet.nodes[nnet.node_indexes[name] - 1].name,)
    return (node.source,) if isinstance(node, DimRangeNode) else ()
