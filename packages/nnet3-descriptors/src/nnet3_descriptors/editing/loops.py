"""The loops of a network: which nodes depend on themselves, at other times."""

from collections.abc import Iterable, Mapping

from nnet3_descriptors import network_structure
from nnet3_descriptors.nnet import Nnet


def sources_of(node: network_structure.Node) -> tuple[str, ...]:
    """Returns the nodes that a node takes its value from."""
    match node:
        case network_structure.DimRangeNode():
            return (node.source,)
        case network_structure.ComponentNode():
            return (node.name + network_structure.INPUT_SUFFIX,)
        case network_structure.ComponentInputNode() | network_structure.OutputNode():
            return node.descriptor.node_names
    return ()


def reached(start: Iterable[str], edges: Mapping[str, Iterable[str]]) -> set[str]:
    """Returns the nodes that edges lead to from some nodes, and these nodes."""
    found = set(start)
    waiting = list(found)
    while waiting:
        new = set(edges[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def loops(nnet: Nnet) -> dict[str, frozenset[str]]:
    """Returns for each node that depends on itself all nodes of its loop: those that also do.

    Two nodes are in one loop if each depends on the other.
    """
    sources = {node.name: set(sources_of(node)) for node in nnet.nodes}
    readers: dict[str, set[str]] = {name: set() for name in sources}
    for name, read in sources.items():
        for source in read:
            readers[source].add(name)
    for edges in (sources, readers):  # only nodes between loops remain
        _remove_ends(edges, readers if edges is sources else sources)
    found: dict[str, frozenset[str]] = {}
    for name in sources:
        if name not in found:
            loop = reached(sources[name], sources) & reached([name], readers)
            found |= dict.fromkeys(loop if name in loop else (), frozenset(loop))
    return found


def _remove_ends(edges: dict[str, set[str]], back: dict[str, set[str]]) -> None:
    """Removes nodes without edges from a graph, until there are none; `back` has its edges, too."""
    waiting = [name for name, following in edges.items() if not following]
    while waiting:
        name = waiting.pop()
        del edges[name]
        for before in back.pop(name):
            edges[before].discard(name)
            if not edges[before]:
                waiting.append(before)
