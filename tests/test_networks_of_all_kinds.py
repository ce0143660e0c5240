"""Graphs and steps of random networks with components of all kinds, held against definitions.

The tests of nnet3-graph and nnet3-compiler have random networks of their own, with fewer kinds of
components and more kinds of recurrence.
"""

from __future__ import annotations

import pytest
import test_steps
from example_generator import example_of_seed
from graph_one_by_one import build_one_by_one
from graph_strategies import MARGIN, STEP
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_graph import build_computation_graph
from test_random_graphs import check_graph, check_states, named

SLOW = {10, 72}
"""Their search by the definition takes as long as that of all others."""


@pytest.mark.parametrize("seed", sorted({*range(100)} - SLOW))
def test_graphs_and_steps(seed: int) -> None:
    """Graphs are those of the definition and of the search; steps obey their rules."""
    example = example_of_seed(seed)
    nnet, request = example.nnet, example.request
    margin, step = ((2 * t, 2 * x) for t, x in (MARGIN, STEP))  # these networks read further
    expected = build_one_by_one(nnet, request, margin, step)
    assert not expected.missing_outputs
    assert not expected.is_endless

    check_graph(nnet, build_computation_graph(nnet, request), expected)
    if not expected.goes_on:
        check_states(nnet, request, expected)
    test_steps.TestStepRules().check(nnet, request)


@pytest.mark.parametrize("seed", range(20))
def test_three_segments(seed: int) -> None:
    """Segments are those of the definition, up to the first that cannot be computed."""
    nnet = example_of_seed(seed).nnet
    context = 12
    margin, step = ((2 * t, 2 * x) for t, x in (MARGIN, STEP))
    previous, earlier = None, []
    for begin, end in ((0, 6), (6, 12), (12, 18)):
        first = begin - context if previous is None else begin + context
        request = ComputationRequest(
            inputs=[
                IoSpecification.from_range(node.name, first, end + context)
                for node in nnet.input_nodes
            ],
            outputs=[
                IoSpecification.from_range(node.name, begin, end) for node in nnet.output_nodes
            ],
        )
        before = [] if previous is None else named(nnet, previous.cindexes)
        expected = build_one_by_one(nnet, request, margin, step, frozenset([*earlier, *before]))
        if expected.missing_outputs or expected.goes_on:
            return
        check_states(nnet, request, expected, previous, earlier)
        previous = build_computation_graph(nnet, request, previous)
        earlier += before
