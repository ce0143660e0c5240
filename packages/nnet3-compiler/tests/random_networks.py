"""Random networks of linear components, and random requests, for property tests.

These networks can be evaluated directly, in double precision.

Nodes for descriptors have `DIM` columns; wider components are read through dim-range nodes.
"""

import numpy as np
from hypothesis import note, reject
from hypothesis import strategies as st
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import ComponentNode, Nnet, parse_config
from nnet3_descriptors.descriptors import Failover, IfDefined, Node, Offset, SumDescriptor
from nnet3_graph import (
    ComputationGraph,
    NotComputableError,
    UnboundedComputationError,
    build_computation_graph,
)
from random_descriptors import leaves, mean_lines, node_lines, sums
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
    lines = [f"input-node name={name} dim={DIM}" for name in names]
    num_layers = draw(st.integers(1, 4))
    layers = [f"layer{number}" for number in range(num_layers)]
    is_wide = [draw(st.integers(0, 2)) == 0 for _ in layers]
    for number, layer in enumerate(layers):
        earlier = names + layers[:number]
        if not is_wide[number] and draw(st.integers(0, 6)) == 0:
            source, left = draw(leaves(earlier)), draw(st.integers(1, 3))
            lines += mean_lines(layer, source, DIM, left=left, right=1)
            continue
        terms = sums(earlier, DIM, cycles(earlier, layers[number:]))
        parts = draw(st.lists(terms, min_size=1, max_size=3))
        node, out_dim = (f"{layer}.wide", WIDE) if is_wide[number] else (layer, DIM)
        lines += node_lines(node, draw(_components(DIM * len(parts), out_dim)), parts)
        if is_wide[number]:
            offset = draw(st.integers(0, WIDE - DIM))
            lines.insert(
                draw(st.sampled_from([len(names), len(lines)])),
                f"dim-range-node name={layer} input-node={node} dim-offset={offset} dim={DIM}",
            )
    for name in ["output", "output-2"][: draw(st.integers(1, 2))]:
        lines.append(f"output-node name={name} input={draw(sums(names + layers, DIM))}")
    config = "\n".join(lines)
    note(config)
    return parse_config(config, rng=np.random.default_rng(draw(st.integers(0, 99))))


@st.composite
def _components(draw: st.DrawFn, input_dim: int, output_dim: int) -> str:
    """The type and the options of a linear component."""
    kinds = ["Linear", "Tdnn"] + ["NoOp", "BackpropTruncation"] * (input_dim == output_dim)
    kind = draw(st.sampled_from(kinds))
    if kind == "NoOp":
        return f"NoOpComponent dim={input_dim}"
    if kind == "BackpropTruncation":
        return f"{kind}Component dim={input_dim} clipping-threshold=0 zeroing-threshold=0"
    options = f"{kind}Component input-dim={input_dim} output-dim={output_dim} param-stddev=1"
    if kind == "Linear":
        return options
    offsets = draw(st.lists(st.integers(-2, 2), min_size=1, max_size=3, unique=True))
    return f"{options} time-offsets={','.join(map(str, offsets))} use-bias=false"


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
    _graph_or_reject(nnet, request)
    return nnet, request


def _graph_or_reject(
    nnet: Nnet, request: ComputationRequest, previous: ComputationGraph | None = None
) -> ComputationGraph:
    """The graph of a request; an example that cannot be computed is drawn again."""
    try:
        graph = build_computation_graph(nnet, request, previous)
    except (NotComputableError, UnboundedComputationError):
        reject()
    if has_circle(graph):
        reject()
    return graph


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
        graph = _graph_or_reject(nnet, requests[-1], graph)
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
