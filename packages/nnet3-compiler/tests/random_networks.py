"""Random networks of linear components, and random requests, for property tests.

These networks can be evaluated directly, in double precision.

Nodes for descriptors have `DIM` columns; wider components are read through dim-range nodes.
"""

from __future__ import annotations

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Nnet,
    OutputNode,
)
from nnet3_descriptors.components import (
    BackpropTruncationComponent,
    LinearComponent,
    NoOpComponent,
    StatisticsExtractionComponent,
    StatisticsPoolingComponent,
    TdnnComponent,
)
from nnet3_descriptors.descriptors import (
    Descriptor,
    Failover,
    ForwardingDescriptor,
    IfDefined,
    Node,
    Offset,
    SumDescriptor,
)
from nnet3_graph import (
    NotComputableError,
    UnboundedComputationError,
    build_computation_graph,
)
from random_descriptors import leaves, sums
from small_networks import has_circle

DIM = 2
WIDE = 5


@st.composite
def cycles(draw: st.DrawFn, earlier: list[str], later: list[str]) -> SumDescriptor:
    """A term that reads a later node at an earlier time."""
    past = Offset(Node(draw(st.sampled_from(later))), -draw(st.integers(1, 3)))
    return draw(st.sampled_from([IfDefined(past), Failover(past, draw(leaves(earlier)))]))


@st.composite
def networks(draw: st.DrawFn) -> Nnet:
    """A network with one or two inputs and outputs, and a few components."""
    names = ["input", "side"][: draw(st.integers(1, 2))]
    nodes: list = [InputNode(name=name, dim=DIM) for name in names]
    num_layers = draw(st.integers(1, 4))
    layers = [f"layer{number}" for number in range(num_layers)]
    is_wide = [draw(st.integers(0, 2)) == 0 for _ in layers]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    components = []
    for number, layer in enumerate(layers):
        if not is_wide[number] and draw(st.integers(0, 6)) == 0:
            nodes += _pooling_nodes(layer, draw(leaves(names + layers[:number])))
            pooling = StatisticsPoolingComponent(
                input_dim=DIM + 1, left_context=draw(st.integers(1, 3)), right_context=1
            )
            components += [
                (
                    f"{layer}.sums",
                    StatisticsExtractionComponent(input_dim=DIM, include_variance=False),
                ),
                (layer, pooling),
            ]
            continue
        component_node = f"{layer}.wide" if is_wide[number] else layer
        out_dim = WIDE if is_wide[number] else DIM
        earlier = names + layers[:number]
        terms = sums(earlier, DIM, cycles(earlier, layers[number:]))
        parts = draw(st.lists(terms, min_size=1, max_size=3))
        nodes += [
            ComponentInputNode(name=f"{component_node}_input", descriptor=Descriptor(tuple(parts))),
            ComponentNode(name=component_node, component=layer),
        ]
        if is_wide[number]:
            offset = draw(st.integers(0, WIDE - DIM))
            range_node = DimRangeNode(name=layer, source=component_node, dim_offset=offset, dim=DIM)
            nodes.insert(draw(st.sampled_from([len(names), len(nodes)])), range_node)
        components.append((layer, draw(_components(rng, DIM * len(parts), out_dim))))
    outputs = ["output", "output-2"][: draw(st.integers(1, 2))]
    for name in outputs:
        descriptor = Descriptor((draw(sums(names + layers, DIM)),))
        nodes.append(OutputNode(name=name, descriptor=descriptor))
    return Nnet(
        component_names=tuple(name for name, _ in components),
        components=tuple(component for _, component in components),
        nodes=tuple(nodes),
    )


def _pooling_nodes(name: str, source: ForwardingDescriptor) -> list:
    """Nodes that take the mean over neighbouring frames."""
    return [
        ComponentInputNode(name=f"{name}.sums_input", descriptor=Descriptor((source,))),
        ComponentNode(name=f"{name}.sums", component=f"{name}.sums"),
        ComponentInputNode(name=f"{name}_input", descriptor=Descriptor((Node(f"{name}.sums"),))),
        ComponentNode(name=name, component=name),
    ]


@st.composite
def _components(draw: st.DrawFn, rng: np.random.Generator, input_dim: int, output_dim: int):
    kinds = ["linear", "tdnn"] + ["no-op", "truncation"] * (input_dim == output_dim)
    kind = draw(st.sampled_from(kinds))
    if kind == "truncation":
        return BackpropTruncationComponent(dim=input_dim)
    if kind == "no-op":
        return NoOpComponent(dim=input_dim)
    if kind == "linear":
        return LinearComponent(params=_matrix(rng, output_dim, input_dim))
    offsets = draw(st.lists(st.integers(-2, 2), min_size=1, max_size=3, unique=True))
    return TdnnComponent(
        time_offsets=tuple(offsets),
        linear_params=_matrix(rng, output_dim, input_dim * len(offsets)),
        bias_params=np.zeros(0, np.float32),
    )


def _matrix(rng: np.random.Generator, rows: int, cols: int) -> np.ndarray:
    return rng.standard_normal((rows, cols)).astype(np.float32)


@st.composite
def io_indexes(draw: st.DrawFn, sequences: int, first: int, last: int, kind: str) -> np.ndarray:
    """Indexes of an input or output: frames in order, of all sequences."""
    times = np.arange(first, last + 1, draw(st.sampled_from([1, 1, 1, 2])))
    if kind == "ragged":
        rows = [
            (n, t, 0) for n in range(sequences) for t in times[: draw(st.integers(1, len(times)))]
        ]
        return np.array(draw(st.permutations(rows)), np.int32)
    extras = (0,) if kind == "regular" else (-1, 0)
    n, t, x = np.meshgrid(np.arange(sequences), times, extras, indexing="ij")
    if draw(st.booleans()):
        n, t, x = n.T, t.T, x.T
    return np.stack([n.ravel(), t.ravel(), x.ravel()], axis=1).astype(np.int32)


@st.composite
def requests(draw: st.DrawFn, nnet: Nnet, derivatives: bool) -> ComputationRequest:
    """A request for a network, of one to four sequences."""
    sequences = draw(st.integers(1, 4))
    kind = draw(st.sampled_from(["regular", "regular", "two x", "ragged"]))
    given = [node.name for node in nnet.input_nodes]
    for node in nnet.nodes:
        if isinstance(node, ComponentNode) and draw(st.integers(0, 9)) == 0:
            given.append(node.name)
    return ComputationRequest(
        inputs=[
            IoSpecification(
                name=name,
                indexes=draw(io_indexes(sequences, -9, 15, kind)),
                has_deriv=derivatives and draw(st.booleans()),
            )
            for name in given
        ],
        outputs=[
            IoSpecification(
                name=node.name,
                indexes=draw(io_indexes(sequences, 0, draw(st.integers(0, 5)), kind)),
                has_deriv=derivatives and (number == 0 or draw(st.booleans())),
            )
            for number, node in enumerate(nnet.output_nodes)
        ],
        need_model_derivative=derivatives and draw(st.booleans()),
    )


@st.composite
def examples(draw: st.DrawFn, derivatives: bool = True) -> tuple[Nnet, ComputationRequest]:
    """A network and a request that it can compute."""
    nnet = draw(networks())
    request = draw(requests(nnet, derivatives))
    try:
        graph = build_computation_graph(nnet, request)
    except (NotComputableError, UnboundedComputationError):
        reject()
    if has_circle(graph):
        reject()
    return nnet, request


@st.composite
def segmented_examples(draw: st.DrawFn) -> tuple[Nnet, list[ComputationRequest]]:
    """A network and the requests of some segments, one after the other, that it can compute."""
    nnet = draw(networks())
    sequences, size = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    before, ahead = draw(st.integers(0, 9)), draw(st.integers(0, 4))
    requests = []
    graph = None
    for number in range(draw(st.integers(2, 4))):
        begin, end = number * size, (number + 1) * size
        first = begin + ahead if number else -before
        kind = draw(st.sampled_from(["regular", "regular", "ragged"]))
        requests.append(
            ComputationRequest(
                inputs=[
                    IoSpecification.from_range(node.name, first, end + ahead, sequences)
                    for node in nnet.input_nodes
                ],
                outputs=[
                    IoSpecification(
                        name=node.name, indexes=draw(io_indexes(sequences, begin, end - 1, kind))
                    )
                    for node in nnet.output_nodes
                ],
            )
        )
        try:
            graph = build_computation_graph(nnet, requests[-1], graph)
        except (NotComputableError, UnboundedComputationError):
            reject()
        if has_circle(graph):
            reject()
    return nnet, requests


def random_arrays(
    nnet: Nnet, specifications: tuple[IoSpecification, ...], seed: int = 0
) -> dict[str, np.ndarray]:
    """Random values for inputs, or derivatives for outputs."""
    rng = np.random.default_rng(seed)
    return {
        io.name: rng.standard_normal((len(io.indexes), nnet.node_dim(io.name)))
        for io in specifications
    }
