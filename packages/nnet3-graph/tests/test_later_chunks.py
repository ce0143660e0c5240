"""The order of nodes, and whether all later chunks of an endless input are computed alike."""

import itertools

import numpy as np
import pytest
from graph_strategies import networks
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import Nnet, parse_config
from nnet3_graph import (
    ComputationGraph,
    NotComputableError,
    UnboundedComputationError,
    build_computation_graph,
    unsettled_node,
)
from nnet3_graph.nodes import node_rules
from small_networks import request_for, stacked

T = 2
LOOKED_AT = 30
"""Chunks; more than any of the drawn networks takes to settle, unless it never does."""


def chunk_request(nnet: Nnet, number: int, size: int, before: int = 0, ahead: int = 0):
    """The request of a chunk: the first has inputs before it, all have some ahead."""
    begin, end = number * size, (number + 1) * size
    first = begin + ahead if number else -before
    return ComputationRequest(
        inputs=[
            IoSpecification.from_range(node.name, first, end + ahead) for node in nnet.input_nodes
        ],
        outputs=[IoSpecification.from_range("output", begin, end)],
    )


def endless_chunks(nnet: Nnet, size: int, before: int = 0, ahead: int = 0):
    """Yields the request and the graph of one chunk after the other."""
    graph = None
    for number in itertools.count():
        chunk = chunk_request(nnet, number, size, before, ahead)
        graph = build_computation_graph(nnet, chunk, graph)
        yield chunk, graph


def first_settled(chunks, size: int) -> int | None:
    """The number of the first settled chunk."""
    for number, (chunk, graph) in enumerate(chunks):
        if number > 0 and unsettled_node(chunk, graph, size) is None:
            return number
    return None


def reads(graph: ComputationGraph, number: int, size: int) -> set[tuple[int, ...]]:
    """Which rows (node, n, t, x) read which, with times counted from the chunk."""
    segments = []
    each: ComputationGraph | None = graph
    while each is not None:
        segments.insert(0, each.cindexes)
        each = each.previous
    cindexes = np.concatenate(segments)
    cindexes[:, T] -= number * size
    readers = np.repeat(graph.cindexes, np.diff(graph.dependency_splits), axis=0)
    readers[:, T] -= number * size
    return {*map(tuple, np.hstack([readers, cindexes[graph.dependencies]]).tolist())}


def without_fixed(reads: set[tuple[int, ...]], nnet: Nnet) -> set[tuple[int, ...]]:
    """The reads of nodes that read no fixed t."""
    has_fixed_t = [rule.has_fixed_t for rule in node_rules(nnet).rules]
    return {each for each in reads if not has_fixed_t[each[0]]}


def network(*layers: str) -> Nnet:
    """Layers n0, n1, ... over the input, and an output that is the last of them."""
    nodes = (f"n{number} NoOp dim=1 input={layer}" for number, layer in enumerate(layers))
    return parse_config(stacked(1, *nodes))


NEVER = "Sum(input, Offset(n0, -1))"
IN_TURNS = (
    "Switch(Offset(n0, -1), Offset(n0, -1), input, Offset(n0, -1))",
    "Switch(Offset(n1, -1), n0, Offset(n1, -1), Offset(n1, -1))",
)
"""A node that begins at t = 2, and one over it that begins at t = 5."""


@pytest.mark.parametrize(
    ("layers", "before", "settled"),
    [
        (["input"], 0, 1),
        (["Sum(input, Offset(input, -5))"], 5, 1),
        (["Sum(input, IfDefined(Offset(n0, -3)))"], 0, 3),
        (["Failover(Offset(input, -7), input)"], 0, 7),
        (["Failover(input, Offset(input, -7))"], 0, 1),
        (["Offset(input, -7)", "Failover(Offset(n0, -7), input)"], 0, 14),
        (["Offset(input, -7)", "Offset(n0, -7)", "Sum(input, IfDefined(Offset(n1, -7)))"], 0, 21),
        (["Failover(Sum(input, Offset(input, -9)), Offset(n0, -1))"], 9, 1),
        ([NEVER, "Failover(n0, input)"], 0, 1),
        ([*IN_TURNS, "Failover(Offset(n1, -3), input)"], 0, 2),
        (["Sum(input, IfDefined(ReplaceIndex(input, t, -2)))"], 0, 1),
        (["Sum(input, IfDefined(ReplaceIndex(input, t, 4)))"], 0, 5),
        (["Sum(input, IfDefined(ReplaceIndex(input, t, 50)))"], 0, None),
        (["Sum(input, ReplaceIndex(input, t, 0))"], 0, 1),
    ],
)
def test_first_settled_chunk(layers: list[str], before: int, settled: int | None) -> None:
    """Chunks settle once each row that they might read can be computed, and is."""
    nnet = network(*layers)
    chunks = itertools.islice(endless_chunks(nnet, nnet.modulus, before), 40)

    assert first_settled(chunks, nnet.modulus) == settled


def test_component_with_optional_context() -> None:
    """Attention that reads frames only where they are settles when it reads all of them."""
    attention = (
        "a RestrictedAttention key-dim=1 value-dim=1 num-left-inputs=4 num-right-inputs=0 "
        "num-left-inputs-required=0 output-context=false time-stride=3"
    )
    nnet = parse_config(stacked(8, attention))
    assert first_settled(itertools.islice(endless_chunks(nnet, 1), 20), 1) == 12


def test_sequence_that_is_new() -> None:
    """A chunk that begins another sequence is not settled, the one after it is."""
    nnet = network("input")
    graph = build_computation_graph(nnet, chunk_request(nnet, 0, 2))
    nodes = []
    for number in (1, 2):
        frames = range(2 * number, 2 * number + 2)
        request = request_for(frames, frames, 2)
        graph = build_computation_graph(nnet, request, graph)
        nodes.append(unsettled_node(request, graph, 2))

    assert nodes == ["output", None]


@st.composite
def looped(draw: st.DrawFn) -> tuple[Nnet, int, int, int]:
    """A network, the frames of a chunk, and how far its inputs reach before and after it."""
    nnet = draw(networks())
    size = nnet.modulus * draw(st.integers(1, 3))
    return nnet, size, draw(st.integers(0, 5)), draw(st.integers(0, 5))


@pytest.mark.any_versions
@settings(max_examples=4 * settings.default.max_examples // 5)
@given(example=looped())
def test_all_chunks_after_a_settled_one_are_like_it(example) -> None:
    """Each later chunk reads the same rows, with times counted from the chunk."""
    nnet, size, before, ahead = example
    endless = endless_chunks(nnet, size, before, ahead)
    try:
        chunks = list(itertools.islice(endless, LOOKED_AT))
    except (NotComputableError, UnboundedComputationError):
        assume(False)
    settled = first_settled(chunks, size)
    assume(settled is not None)
    chunks += itertools.islice(endless, LOOKED_AT)
    first, *later = (
        without_fixed(reads(graph, number, size), nnet)
        for number, (_, graph) in enumerate(chunks)
        if number >= settled
    )

    assert all(each == first for each in later)
