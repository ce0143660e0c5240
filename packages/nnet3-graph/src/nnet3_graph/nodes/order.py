"""The order of nodes by their dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nnet3_descriptors import ComponentInputNode, ComponentNode, DimRangeNode, Nnet, OutputNode
from nnet3_descriptors.values import remembered


@remembered
def node_groups(nnet: Nnet) -> tuple[tuple[int, ...], ...]:
    """Groups the nodes of a network that depend on each other, in an order of computation.

    Depth-first searches begin at the nodes in their order and go along the users of each node. The
    group that such a search leaves last comes first. This rule orders groups that do not depend on
    each other.

    Returns:
        The nodes, each once, in groups. What a node reads stands before it, except for the edges
        inside a group that close a cycle.
    """
    groups = strongly_connected_components(node_users(nnet))
    return tuple(group[::-1] for group in reversed(groups))


def node_users(nnet: Nnet) -> list[list[int]]:
    """Returns for each node the nodes that read it directly, ascending: the graph of nodes."""
    position = nnet.node_indexes
    users: list[list[int]] = [[] for _ in nnet.nodes]
    for number, node in enumerate(nnet.nodes):
        match node:
            case ComponentNode():
                users[number - 1].append(number)
            case DimRangeNode():
                users[position[node.source]].append(number)
            case ComponentInputNode() | OutputNode():
                for name in node.descriptor.node_names:
                    users[position[name]].append(number)
    return users


def strongly_connected_components(sources: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Groups nodes that depend on each other, and orders the groups.

    Tarjan's algorithm ("Depth-first search and linear graph algorithms", 1972), without recursion.

    Args:
        sources: for each node, the nodes that it reads.

    Returns:
        The nodes, each once, in groups. What a node reads stands before it, except for the edges
        inside a group that close a cycle.
    """
    count = len(sources)
    number = [-1] * count  # in the order of discovery
    lowest = [0] * count
    on_stack = [False] * count
    finished: list[int] = []
    stack: list[int] = []
    groups: list[tuple[int, ...]] = []
    discovered = 0
    for root in range(count):
        if number[root] >= 0:
            continue
        path: list[tuple[int, Iterator[int]]] = [(root, iter(sources[root]))]
        number[root] = lowest[root] = discovered
        discovered += 1
        stack.append(root)
        on_stack[root] = True
        while path:
            node, rest = path[-1]
            for source in rest:
                if number[source] < 0:
                    number[source] = lowest[source] = discovered
                    discovered += 1
                    stack.append(source)
                    on_stack[source] = True
                    path.append((source, iter(sources[source])))
                    break
                if on_stack[source]:
                    lowest[node] = min(lowest[node], number[source])
            else:
                path.pop()
                finished.append(node)
                if path:
                    reader = path[-1][0]
                    lowest[reader] = min(lowest[reader], lowest[node])
                if lowest[node] < number[node]:
                    continue
                if stack[-1] == node:  # alone in its group, as all nodes outside of recurrences
                    on_stack[node] = False
                    groups.append((stack.pop(),))
                    finished.pop()
                else:
                    groups.append(_take_group(node, stack, on_stack, finished))
    return tuple(groups)


def _take_group(
    root: int, stack: list[int], on_stack: list[bool], finished: list[int]
) -> tuple[int, ...]:
    """Takes the group of a root off the stack; its nodes are the last that were finished."""
    size = 1
    while stack[-size] != root:
        size += 1
    for node in stack[-size:]:
        on_stack[node] = False
    del stack[-size:]
    group = tuple(finished[-size:])
    del finished[-size:]
    return group
