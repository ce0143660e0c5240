"""The nodes of a network grouped into layers, as a person would draw them: one box for each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import attrs
import numpy as np
from nnet3_descriptors import (
    Component,
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Nnet,
    Node,
    OutputNode,
    descriptors,
)
from nnet3_graph import ContextError, compute_context

SHORT = {
    "Affine": "affine",
    "BatchNorm": "batch-norm",
    "FixedAffine": "fixed affine",
    "Linear": "linear",
    "LogSoftmax": "log-softmax",
    "NaturalGradientAffine": "affine",
    "NoOp": "copy",
    "RectifiedLinear": "ReLU",
    "Sigmoid": "sigmoid",
    "Softmax": "softmax",
    "Tanh": "tanh",
    "Tdnn": "TDNN",
    "TimeHeightConvolution": "convolution",
}
"""Short names of frequent types; others have their name without "Component"."""

MOST_FRAMES = 8
"""If a component reads more frames, the first and the last are shown."""

_FIXED = re.compile(r"ReplaceIndex\([^(),]+, t, (-?\d+)\)")
_SCALE = re.compile(r"Scale\(([^,]+), ")


@attrs.frozen
class Read:
    """Something that a layer reads.

    Attributes:
        source: The node.
        offset: The offset in frames at which the layer reads it; None if it is not fixed.
        text: Its description, such as "-3", "at t = 0" or "times 0.66 added": a term of a sum.
        is_optional: Whether the layer can do without it.
    """

    source: str
    offset: int | None
    text: str
    is_optional: bool


@attrs.frozen
class Layer:
    """Nodes that follow one another without anything else between them.

    Attributes:
        name: The part that the names of its nodes have in common.
        kind: "input", "output" or "layer".
        nodes: Their names.
        parts: A description of each node, such as "affine" or "TDNN (-3, 0)"; see `frames_read`.
        input_dim: Columns that the first one takes.
        output_dim: Columns that the last one gives.
        num_parameters: Parameters of their components; shared ones are counted each time.
        reads: The sources that the first node reads.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]
    parts: tuple[str, ...]
    input_dim: int
    output_dim: int
    num_parameters: int
    reads: tuple[Read, ...]


def layers_of(nnet: Nnet) -> tuple[Layer, ...]:
    """Groups the nodes of a network, in their order.

    A node joins the layer before it if three things hold: it reads only the last node of that
    layer, nothing else reads that node, and the names agree up to the last "." or "_".
    """
    single = [_layer(nnet, node) for node in nnet.nodes if not isinstance(node, ComponentInputNode)]
    readers = Counter(read.source for layer in single for read in layer.reads)
    layers: list[Layer] = []
    for layer in single:
        if layers and _continues(layers[-1], layer, readers):
            layers[-1] = _joined(layers[-1], layer)
        else:
            layers.append(layer)
    return tuple(layers)


def frames_read(component: Component) -> str:
    """Returns which frames the row of frame 0 reads, such as "-3, 0"; "" for frame 0 alone."""
    _, read = component.input_dependencies(np.zeros((1, 3), np.int32))
    frames = np.unique(read[:, 1]).tolist()
    if frames in ([], [0]):
        return ""
    first, *others = (f"{frame:+d}" if frame else "0" for frame in frames)
    return f"{first} to {others[-1]}" if len(frames) > MOST_FRAMES else ", ".join((first, *others))


def with_frames(name: str, component: Component) -> str:
    """Returns a name with the frames that the component reads, such as "TDNN (-3, 0)"."""
    frames = frames_read(component)
    return f"{name} ({frames})" if frames else name


def _layer(nnet: Nnet, node: Node) -> Layer:
    """A layer of one node."""
    dim, kind, num_parameters = nnet.node_dim(node.name), "layer", 0
    input_dim = dim
    parts: tuple[str, ...] = ()
    reads: tuple[Read, ...] = ()
    match node:
        case InputNode():
            kind = "input"
        case OutputNode(descriptor=descriptor):
            kind, reads = "output", tuple(_reads(descriptor))
        case DimRangeNode(source=source, dim_offset=first):
            parts = (f"columns {first} to {first + dim - 1}",)
            reads = (Read(source, 0, "0", is_optional=False),)
            input_dim = nnet.node_dim(source)
        case ComponentNode():
            component = nnet.component_of(node)
            type_name = component.type.removesuffix("Component")
            parts = (with_frames(SHORT.get(type_name, type_name), component),)
            num_parameters, input_dim = component.num_parameters, component.input_dim
            before = nnet.nodes[nnet.node_index(node.name) - 1]
            assert hasattr(before, "descriptor")
            reads = tuple(_reads(before.descriptor))
    return Layer(
        name=node.name,
        kind=kind,
        nodes=(node.name,),
        parts=parts,
        input_dim=input_dim,
        output_dim=dim,
        num_parameters=num_parameters,
        reads=reads,
    )


def _reads(descriptor: descriptors.Descriptor) -> Iterator[Read]:
    """The sources that a descriptor reads, each once."""
    found = (
        _read(source, leaf, is_optional, is_added=len(part.leaves) > 1 and _is_sum(part))
        for part in descriptor.parts
        for leaf, is_optional in descriptors.leaves_of(descriptors.Descriptor((part,)))
        for source in leaf.node_names
    )
    yield from dict.fromkeys(found)


def _is_sum(part: descriptors.SumDescriptor) -> bool:
    """Whether a part adds what it reads, which does not stand side by side then."""
    return isinstance(part, descriptors.Sum) or any(map(_is_sum, part.operands))


def _read(
    source: str, leaf: descriptors.ForwardingDescriptor, is_optional: bool, *, is_added: bool
) -> Read:
    shift = leaf.shift()
    if shift is None:
        fixed = _FIXED.fullmatch(str(leaf))
        text = f"at t = {fixed[1]}" if fixed else str(leaf).replace(source, "·")
        return Read(source, None, f"{text} added" if is_added else text, is_optional)
    _, offset, _ = shift
    scale = _SCALE.search(str(leaf))
    said = ([f"{offset:+d}"] if offset else []) + ([f"times {scale[1]}"] if scale else [])
    said += ["added"] if is_added else []
    return Read(source, offset, " ".join(said) or "0", is_optional)


def _stem(name: str) -> str:
    """A name up to its last "." or "_"."""
    cut = max(name.rfind("."), name.rfind("_"))
    return name[:cut] if cut > 0 else name


def _continues(before: Layer, layer: Layer, readers: Counter[str]) -> bool:
    last = before.nodes[-1]
    return (
        layer.kind == before.kind == "layer"
        and readers[last] == 1
        and layer.reads == (Read(last, 0, "0", is_optional=False),)
        and _stem(layer.name) == _stem(before.nodes[0])
    )


def _joined(before: Layer, layer: Layer) -> Layer:
    return attrs.evolve(
        before,
        name=_stem(layer.name),
        nodes=(*before.nodes, *layer.nodes),
        parts=(*before.parts, *layer.parts),
        output_dim=layer.output_dim,
        num_parameters=before.num_parameters + layer.num_parameters,
    )


def context_of(nnet: Nnet) -> tuple[int, int] | None:
    """Returns left and right context in frames; None where it is not defined."""
    try:
        return compute_context(nnet)
    except ContextError:  # other inputs or outputs, or no output from frames of input alone
        return None
