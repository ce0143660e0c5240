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
from reference_cases import ReferenceCase, case_names, parametrize_cases


def test_number_of_cases() -> None:
    """All 89 cases are found."""
    assert len(case_names("component")) == 59
    assert len(case_names("network")) == 30


@parametrize_cases()
def test_graphs_and_steps(case: ReferenceCase) -> None:
    """Nodes have as many cindexes as Kaldi's, before and after steps; the steps are Kaldi's.

    Steps add cindexes for whole dim-range nodes and padding.
    """
    nnet, request, kaldi = read_nnet(case.network_path), case.request, case.structure

    graph = build_computation_graph(nnet, request)
    steps = Compiler(nnet, request).make_steps()

    assert kaldi["cindexes"] == graph.counts_by_node()
    node_of_row = steps.node[steps.step_of_row]
    cindexes = np.unique(np.column_stack([node_of_row, steps.indexes]), axis=0)
    counts = Counter(nnet.node_names[node] for node in cindexes[:, 0].tolist())
    assert kaldi["cindexes_after_steps"] == dict(counts)
    computation = compile_computation(nnet, request)
    assert [tuple(step) for step in kaldi["steps"]] == computation.steps_by_node(nnet)


@parametrize_cases(only=lambda case: bool(case.structure["is_simple"]) and case.info is not None)
def test_context(case: ReferenceCase) -> None:
    """Left context, right context and modulus are Kaldi's, for networks that have them."""
    nnet = read_nnet(case.network_path)
    structure = case.structure

    assert (structure["left_context"], structure["right_context"]) == compute_context(nnet)
    assert structure["modulus"] == nnet.modulus


@parametrize_cases()
def test_text_and_bytes(case: ReferenceCase) -> None:
    """A request and a computation are restored from bytes and text as equal values."""
    nnet, request = read_nnet(case.network_path), case.request
    computation = compile_computation(nnet, request)

    assert request == ComputationRequest.from_bytes(request.to_bytes())
    assert computation == parse_computation(format_computation(computation, nnet), nnet)
    restored = NnetComputation.from_bytes(computation.to_bytes())
    assert computation == restored
    assert computation.to_bytes() == restored.to_bytes()
