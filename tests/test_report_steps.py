"""The steps that nnet3-report draws, for the networks of the reference."""

from __future__ import annotations

from pathlib import Path

import pytest
from nnet3_compiler import compile_computation
from nnet3_descriptors import read_nnet
from nnet3_graph import ContextError, build_computation_graph
from nnet3_report import layers_of
from nnet3_report.pages import usual_request
from nnet3_report.pages.steps_picture import step_facts, steps_picture

NETWORKS = sorted((Path(__file__).parent / "reference" / "network").glob("*/*.raw"))


@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_steps_of_all_topologies(path: Path) -> None:
    """The steps are those of the program, each reads earlier ones, and no arrow goes up."""
    nnet = read_nnet(path)
    try:
        request = usual_request(nnet, 20, 2, 1, train=False)
    except ContextError:
        pytest.skip("the network has no finite context, so it has no usual request")
    facts = step_facts(nnet, request, build_computation_graph(nnet, request))
    picture = steps_picture(nnet, facts, layers_of(nnet))

    program = compile_computation(nnet, request).steps_by_node(nnet)
    assert [(step.node, step.rows) for step in facts.steps] == program
    assert all(source < number for number, step in enumerate(facts.steps) for source in step.reads)
    assert '"edge recurrent"' not in picture.svg
    assert picture.missing == 0
