"""Graphs of random networks are what the definitions say, worked out one cindex at a time."""

import pytest
from graph_one_by_one import build_one_by_one
from graph_strategies import MARGIN, STEP, networks_and_requests
from hypothesis import event, given, settings
from nnet3_graph import (
    ComputationGraphBuilder,
    NotComputableError,
    UnboundedComputationError,
)


def named(nnet, cindexes):
    """Rows of an array of cindexes as tuples with the name of the node."""
    names = nnet.node_names
    return [(names[node], n, t, x) for node, n, t, x in cindexes.tolist()]


@settings(max_examples=150, deadline=None)
@given(networks_and_requests())
def test_same_graph_as_one_by_one(example):
    """Computability, cindexes, inputs and dependencies are those of the definition."""
    nnet, request = example
    expected = build_one_by_one(nnet, request, MARGIN, STEP)
    builder = ComputationGraphBuilder(nnet, request)
    builder.compute()

    assert builder.all_outputs_are_computable() == (not expected.missing_outputs)
    if expected.missing_outputs:
        event("not computable")
        with pytest.raises(NotComputableError):
            builder.prune()
        return
    if expected.is_endless:
        event("endless")
        with pytest.raises(UnboundedComputationError):
            builder.prune()
        return
    event("computable")
    builder.prune()
    graph = builder.graph
    cindexes = named(nnet, graph.cindexes)
    splits, dependencies = graph.dependency_splits.tolist(), graph.dependencies.tolist()
    assert set(cindexes) == expected.cindexes
    assert len(cindexes) == len(set(cindexes))
    assert [cindex in expected.given for cindex in cindexes] == graph.is_input.tolist()
    for row, cindex in enumerate(cindexes):
        read = dependencies[splits[row] : splits[row + 1]]
        assert read == sorted(set(read))
        assert {cindexes[each] for each in read} == expected.used.get(cindex, set())
