"""A network as a graph in the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from nnet3_descriptors import (
    INPUT_SUFFIX,
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Nnet,
    Node,
    OutputNode,
)
from nnet3_descriptors.descriptors import Descriptor, ForwardingDescriptor, leaves_of


def format_dot(nnet: Nnet) -> str:
    """Returns a digraph: ellipses are inputs and outputs, boxes are components and dim ranges.

    An edge is labelled with the descriptor that it stands for unless it is plain; it is dashed if
    the value is optional.
    """
    lines = [
        "digraph nnet {",
        "  rankdir=BT;",
        '  node [shape=box, fontname="Helvetica"];',
        *(f"  {line}" for node in nnet.nodes for line in _node_lines(nnet, node)),
        "}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _node_lines(nnet: Nnet, node: Node) -> Iterator[str]:
    match node:
        case InputNode():
            yield _vertex(node.name, f"{node.dim} columns", shape="ellipse")
        case ComponentNode():
            component = nnet.component_of(node)
            dims = f"{component.input_dim} to {component.output_dim} columns"
            yield _vertex(node.name, component.type, dims)
        case DimRangeNode():
            last = node.dim_offset + node.dim - 1
            yield _vertex(node.name, f"columns {node.dim_offset} to {last}", style="rounded")
            yield f'"{node.source}" -> "{node.name}";'
        case OutputNode():
            columns = f"{nnet.node_dim(node.name)} columns"
            yield _vertex(node.name, columns, shape="ellipse")
            yield from _edges(node.descriptor, node.name)
        case ComponentInputNode():
            yield from _edges(node.descriptor, node.name.removesuffix(INPUT_SUFFIX))


def _vertex(name: str, *lines: str, **attributes: str) -> str:
    label = "\\n".join((name, *lines))
    more = "".join(f", {key}={value}" for key, value in attributes.items())
    return f'"{name}" [label="{label}"{more}];'


def _edges(descriptor: Descriptor, target: str) -> Iterator[str]:
    """Returns an edge for each node of each forwarding descriptor, each only once."""
    edges = (
        _edge(source, target, leaf, is_optional)
        for leaf, is_optional in leaves_of(descriptor)
        for source in leaf.node_names
    )
    yield from dict.fromkeys(edges)


def _edge(source: str, target: str, leaf: ForwardingDescriptor, is_optional: bool) -> str:
    attributes = [f'label="{leaf}"'] if str(leaf) != source else []
    if is_optional:
        attributes.append("style=dashed")
    suffix = f" [{', '.join(attributes)}]" if attributes else ""
    return f'"{source}" -> "{target}"{suffix};'
