"""Random networks and requests for property tests.

All nodes have one column, so that any node fits any descriptor. A node mostly reads an input or an
earlier node. A reference to a later node closes a cycle; most such references are optional, as in
real recurrent networks, but not all.
"""

from __future__ import annotations

import numpy as np
from hypothesis import note
from hypothesis import strategies as st
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import ComponentNode, Nnet, parse_config
from nnet3_descriptors.descriptors import Failover, IfDefined, Offset, SumDescriptor
from random_descriptors import MAX_OFFSET, leaves, mean_lines, node_lines, sums

STEP = (30, 8)
"""More than any chain of offsets (t, x) of these networks without a cycle."""
MARGIN = (60, 16)
"""How far t and x must be followed to distinguish an endless recurrence from a long chain."""

Index = tuple[int, int, int]


@st.composite
def cycles(draw: st.DrawFn, earlier: list[str], later: list[str]) -> SumDescriptor:
    """A term that reads a later node at another time; a few of them have to be there."""
    t_offset = draw(st.sampled_from([-2, -1, -1, 1]))
    again = Offset(draw(leaves(later, 1)), t_offset, 0)
    match draw(st.sampled_from(["optional"] * 4 + ["failover", "failover", "required"])):
        case "optional":
            return IfDefined(again)
        case "failover":
            return Failover(again, draw(leaves(earlier)))
        case _:
            return again


@st.composite
def component_lines(draw: st.DrawFn, name: str, parts: list[SumDescriptor]) -> list[str]:
    """The config lines of a component node, and of those below it, with one column of output."""
    kinds = ["no-op"] * 3 + ["tdnn", "convolution", "statistics", "constant"]
    kind = draw(st.sampled_from(kinds)) if len(parts) == 1 else "affine"
    if len(parts) == 1 and draw(st.integers(0, 7)) == 0:
        kind = draw(st.sampled_from(["attention", "distribute"]))
    offsets = draw(
        st.lists(st.integers(-MAX_OFFSET, MAX_OFFSET), min_size=1, max_size=3, unique=True)
    )
    listed = ",".join(map(str, sorted(offsets)))
    match kind:
        case "no-op":
            config = "NoOpComponent dim=1"
        case "affine":
            config = f"AffineComponent input-dim={len(parts)} output-dim=1"
        case "tdnn":
            config = f"TdnnComponent input-dim=1 output-dim=1 time-offsets={listed}"
        case "convolution":
            config = (
                f"TimeHeightConvolutionComponent num-filters-in=1 num-filters-out=1 height-in=1 "
                f"height-out=1 height-offsets=0 time-offsets={listed} "
                f"required-time-offsets={draw(st.sampled_from(offsets))}"
            )
        case "attention":
            config = (
                "RestrictedAttentionComponent key-dim=1 value-dim=1 num-left-inputs=1 "
                "num-right-inputs=1 num-left-inputs-required=0 output-context=false"
            )
            parts = parts * 6  # key, value and query; the query has the context, too
        case "distribute":
            config = "DistributeComponent input-dim=2 output-dim=1"
            parts = parts * 2
        case "constant":
            config = "ConstantComponent output-dim=1"
        case "statistics":
            period = draw(st.integers(1, 2))
            context = period * draw(st.integers(0, 1))
            return mean_lines(name, parts[0], 1, period=period, left=context, right=period)
    return node_lines(name, config, parts)


@st.composite
def networks(draw: st.DrawFn, max_layers: int = 4) -> Nnet:
    """A network of a few component and dim-range nodes, with one or two outputs."""
    inputs = ["input", "side"] if draw(st.booleans()) else ["input"]
    layers = [f"layer{number}" for number in range(draw(st.integers(1, max_layers)))]
    lines = [f"input-node name={name} dim=1" for name in inputs]
    ranges = set()
    for number, name in enumerate(layers):
        earlier, later = inputs + layers[:number], layers[number:]
        sources = [source for source in earlier if source not in ranges]
        if number > 0 and draw(st.integers(0, 5)) == 0:
            source = draw(st.sampled_from(sources))
            lines.append(f"dim-range-node name={name} input-node={source} dim-offset=0 dim=1")
            ranges.add(name)
            continue
        terms = sums(earlier, 1, cycles(earlier, later))
        parts = draw(st.lists(terms, min_size=1, max_size=2))
        lines += draw(component_lines(name, parts))
    for name in ["output", "output-2"][: draw(st.integers(1, 2))]:
        lines.append(f"output-node name={name} input={draw(sums(inputs + layers, 1))}")
    config = "\n".join(lines)
    note(config)
    return parse_config(config, rng=np.random.default_rng(0))


@st.composite
def index_rows(draw: st.DrawFn, sequences: int, max_frames: int) -> list[Index]:
    """Rows of some sequences: often a range of t with x = 0, sometimes any, in any order."""
    rows = []
    length = draw(st.integers(1, max_frames))
    for n in range(sequences):
        match draw(st.sampled_from(["range", "range", "ragged", "any", "two x"])):
            case "range":
                rows += [(n, t, 0) for t in range(length)]
            case "ragged":
                rows += [(n, t, 0) for t in range(draw(st.integers(1, max_frames)))]
            case "any":
                times = draw(st.sets(st.integers(-2, max_frames), max_size=max_frames))
                rows += [(n, t, 0) for t in times]
            case _:
                rows += [(n, t, x) for t in range(length) for x in (0, 1)]
    rows = rows or [(0, 0, 0)]
    return draw(st.permutations(rows)) if draw(st.booleans()) else rows


def request_of(given: list[Index], wanted: list[Index]) -> ComputationRequest:
    """A request that gives rows of the input and asks for rows of the output."""
    return ComputationRequest(
        inputs=[IoSpecification(name="input", indexes=given)],
        outputs=[IoSpecification(name="output", indexes=wanted)],
    )


@st.composite
def requests(draw: st.DrawFn, nnet: Nnet) -> ComputationRequest:
    """A request for a network; it can give component nodes, too."""
    sequences = draw(st.integers(1, 3))
    given = [node.name for node in nnet.input_nodes]
    for node in nnet.nodes:
        if isinstance(node, ComponentNode) and draw(st.integers(0, 5)) == 0:
            given.append(node.name)
    return ComputationRequest(
        inputs=[
            IoSpecification(name=name, indexes=draw(index_rows(sequences, 7))) for name in given
        ],
        outputs=[
            IoSpecification(name=node.name, indexes=draw(index_rows(sequences, 3)))
            for node in nnet.output_nodes
        ],
    )


@st.composite
def networks_and_requests(draw: st.DrawFn) -> tuple[Nnet, ComputationRequest]:
    """A network and a request for it."""
    nnet = draw(networks())
    return nnet, draw(requests(nnet))


@st.composite
def networks_and_two_requests(
    draw: st.DrawFn,
) -> tuple[Nnet, ComputationRequest, ComputationRequest]:
    """A network and the requests of two segments, the second for later times."""
    nnet = draw(networks())
    length, sequences = draw(st.integers(1, 5)), draw(st.integers(1, 2))
    given = [node.name for node in nnet.input_nodes]
    wanted = [node.name for node in nnet.output_nodes]
    first, second = (
        ComputationRequest(
            inputs=[
                IoSpecification.from_range(name, begin - before, end, sequences) for name in given
            ],
            outputs=[IoSpecification.from_range(name, begin, end, sequences) for name in wanted],
        )
        for begin, end, before in ((0, length, draw(st.integers(0, 3))), (length, 2 * length, 0))
    )
    return nnet, first, second
