"""A network as text: as a graph in the language of Graphviz, or as a tree of layers and nodes.

    34 nodes, 16 components, 32,011 parameters
    ├─ input                    23
    ├─ tdnn1              69 -> 64       4,480  reads input (-1, 0, +1)
    │  ├─ affine          69 -> 64       4,480  NaturalGradientAffine
    │  ├─ relu            64 -> 64              RectifiedLinear
    │  └─ batchnorm       64 -> 64              BatchNorm
    └─ output                  11              reads tdnn1

A line names the layers that a layer reads, and the offsets in frames; "?" marks optional reads.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

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

from nnet3_report.layers import Layer, Read, layers_of, with_frames

Paint = Callable[[str, str], str]
"""Gives a text its colour; the second argument says what part of the tree it is, see
`format_tree`."""


class _Line(NamedTuple):
    """A line of the tree.

    Attributes:
        branch: The lines before the name, such as "├─ ".
        name: Of a layer, or of a node within one.
        kind: "input", "output", "layer" or "node".
        dims: Columns, as text.
        num_parameters: How many; 0 shows nothing.
        what: The sources of the layer, or the type of the node.
    """

    branch: str
    name: str
    kind: str
    dims: str
    num_parameters: int
    what: str


_NARROWEST = 24
"""The fewest columns for the text of a layer or node, however narrow the terminal is."""


def format_tree(
    nnet: Nnet, paint: Paint = lambda text, kind: text, *, width: int | None = None
) -> str:
    """Returns the tree, each line with its line end.

    Args:
        nnet: The network.
        paint: Colours each text; the second argument is "branch", "input", "output", "layer",
            "node" (a name), "dims", "parameters", "reads" or "type".
        width: The columns of the terminal: longer lines continue below, under their last column.
            None for lines of any length.
    """
    layers = layers_of(nnet)
    layer_of = {node: layer for layer in layers for node in layer.nodes}
    lines = [
        line
        for number, layer in enumerate(layers)
        for line in _layer_lines(nnet, layer, layer_of, is_last=number == len(layers) - 1)
    ]
    name_width = max((len(line.branch + line.name) for line in lines), default=0)
    dims_width = max((len(line.dims) for line in lines), default=0)
    most = max((len(f"{line.num_parameters:,}") for line in lines), default=0)
    text = (
        f"{len(nnet.nodes)} nodes, {len(nnet.components)} components, "
        f"{nnet.num_parameters:,} parameters\n"
    )
    indent = name_width + 2 + dims_width + 2 + most + 2
    room = None if width is None else max(width - indent, _NARROWEST)
    for line in lines:
        parameters = f"{line.num_parameters:,}" if line.num_parameters else ""
        kind = "type" if line.kind == "node" else "reads"
        what, *below = textwrap.wrap(line.what, room) if room and line.what else [line.what]
        shown = [
            paint(line.branch, "branch")
            + paint(line.name, line.kind)
            + " " * (name_width - len(line.branch + line.name)),
            paint(line.dims.rjust(dims_width), "dims"),
            paint(parameters.rjust(most), "parameters") if parameters or line.what else "",
            paint(what, kind) if what else "",
        ]
        text += "  ".join(each for each in shown if each) + "\n"
        branch = line.branch.replace("├─", "│ ").replace("└─", "  ")
        for each in below:
            text += paint(branch, "branch") + " " * (indent - len(branch)) + paint(each, kind)
            text += "\n"
    return text


def _layer_lines(
    nnet: Nnet, layer: Layer, layer_of: Mapping[str, Layer], *, is_last: bool
) -> Iterator[_Line]:
    reads = f"reads {', '.join(_reads(layer, layer_of))}" if layer.reads else ""
    has_nodes = len(layer.nodes) > 1
    if layer.kind == "layer" and not has_nodes:
        reads = f"{layer.parts[0]}, {reads}" if reads else layer.parts[0]
    yield _Line(
        branch="└─ " if is_last else "├─ ",
        name=layer.name,
        kind=layer.kind,
        dims=_dims(layer.input_dim, layer.output_dim, layer.kind),
        num_parameters=layer.num_parameters,
        what=reads,
    )
    if not has_nodes:
        return
    for name, part in zip(layer.nodes, layer.parts, strict=True):
        node = nnet.node(name)
        dim = nnet.node_dim(name)
        component = nnet.component_of(node) if isinstance(node, ComponentNode) else None
        branch = "└─ " if name == layer.nodes[-1] else "├─ "
        yield _Line(
            branch=f"{'   ' if is_last else '│  '}{branch}",
            name=name.removeprefix(layer.name).lstrip("._") or name,
            kind="node",
            dims=_dims(component.input_dim if component else dim, dim, "node"),
            num_parameters=component.num_parameters if component else 0,
            what=with_frames(component.type.removesuffix("Component"), component)
            if component
            else part,
        )


def _dims(input_dim: int, output_dim: int, kind: str) -> str:
    return str(output_dim) if kind in ("input", "output") else f"{input_dim} -> {output_dim}"


def _reads(layer: Layer, layer_of: Mapping[str, Layer]) -> Iterator[str]:
    """The sources that a layer reads, each once, with the offsets in time."""
    by_source: dict[str, list[Read]] = {}
    for read in layer.reads:
        by_source.setdefault(read.source, []).append(read)
    for source, reads in by_source.items():
        of = layer_of[source]
        name = of.name if source == of.nodes[-1] else source
        places = [f"{read.text}{'?' if read.is_optional else ''}" for read in reads]
        yield name if places == ["0"] else f"{name} ({', '.join(places)})"


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
