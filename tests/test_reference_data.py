"""The reference data is complete, and its graphs and steps are ours."""

from collections import Counter

import numpy as np
from nnet3_compiler import Compiler, compile_computation
from nnet3_computation import (
    ComputationRequest,
    NnetComputation,
    format_computation,
    parse_computation,
)
from nnet3_descriptors import read_nnet
from nnet3_graph import build_computation_graph, compute_context
from reference_cases import ReferenceCase, case_names, computation_request, parametrize_cases


def test_number_of_cases() -> None:
    """All 89 cases are found."""
    assert len(case_names("component")) == 59
    assert len(case_names("network")) == 30


@parametrize_cases()
def test_arrays_fit_the_request(case: ReferenceCase) -> None:
    """Each input and output of the request has an array with one row for each of its indexes."""
    given, expected = case.node_arrays("input"), case.node_arrays("output")

    assert {io.name for io in case.request.inputs} == set(given)
    assert {io.name for io in case.request.outputs} == set(expected)
    for io in (*case.request.inputs, *case.request.outputs):
        array = given.get(io.name, expected.get(io.name))
        assert array is not None
        assert array.dtype == np.float32
        assert len(array) == len(io.indexes)


@parametrize_cases()
def test_counts_of_cindexes(case: ReferenceCase) -> None:
    """After pruning, each node has as many cindexes as in Kaldi's graph."""
    nnet = read_nnet(case.network_path)

    graph = build_computation_graph(nnet, computation_request(case))

    assert case.structure["cindexes"] == graph.counts_by_node()


@parametrize_cases(only=lambda case: bool(case.structure["is_simple"]) and case.info is not None)
def test_context(case: ReferenceCase) -> None:
    """Left context, right context and modulus are Kaldi's, for networks that have them."""
    nnet = read_nnet(case.network_path)
    structure = case.structure

    assert (structure["left_context"], structure["right_context"]) == compute_context(nnet)
    assert structure["modulus"] == nnet.modulus


@parametrize_cases()
def test_steps(case: ReferenceCase) -> None:
    """The steps come in Kaldi's order and have as many rows."""
    nnet = read_nnet(case.network_path)

    computation = compile_computation(nnet, computation_request(case))

    assert [tuple(step) for step in case.structure["steps"]] == computation.steps_by_node(nnet)


@parametrize_cases()
def test_text_of_the_computation(case: ReferenceCase) -> None:
    """The text form of a computation is parsed to an equal computation."""
    nnet = read_nnet(case.network_path)
    computation = compile_computation(nnet, computation_request(case))

    text = format_computation(computation, nnet)

    assert computation == parse_computation(text, nnet)


@parametrize_cases()
def test_counts_of_cindexes_after_steps(case: ReferenceCase) -> None:
    """Steps add as many cindexes as Kaldi's, for whole dim-range nodes and padding."""
    nnet = read_nnet(case.network_path)

    steps = Compiler(nnet, computation_request(case)).make_steps()

    node_of_row = steps.node[steps.step_of_row]
    cindexes = np.unique(np.column_stack([node_of_row, steps.indexes]), axis=0)
    counts = Counter(nnet.node_names[node] for node in cindexes[:, 0].tolist())
    assert case.structure["cindexes_after_steps"] == dict(counts)


@parametrize_cases()
def test_serialized_request_and_computation(case: ReferenceCase) -> None:
    """Request and computation are restored from their bytes as equal values."""
    request = computation_request(case)
    computation = compile_computation(read_nnet(case.network_path), request)

    assert request == ComputationRequest.from_bytes(request.to_bytes())
    restored = NnetComputation.from_bytes(computation.to_bytes())
    assert computation == restored
    assert computation.to_bytes() == restored.to_bytes()
