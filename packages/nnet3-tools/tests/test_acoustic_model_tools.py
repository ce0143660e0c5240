"""The tools that make acoustic models from networks, trees and alignments."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from nnet3_descriptors import parse_config, read_acoustic_model, write_nnet
from small_networks import stacked
from tool_runs import run_tool

CONFIG = stacked(
    2, "affine Affine input-dim=4 output-dim=3", splice="Append(Offset(input, -2), input)"
)
TREE = """ContextDependency 1 0 ToPdf TE 0 3 ( NULL CE 0 SE -1 [ 0 ] { CE 1 CE 2 } )
EndContextDependency """
TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> 1 2 </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State> </TopologyEntry> </Topology>
"""


init = functools.partial(run_tool, "nnet3-am-init", expected=0)
train = functools.partial(run_tool, "nnet3-am-train-transitions", expected=0)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an acoustic model in the current folder."""
    monkeypatch.chdir(tmp_path)
    return initial_model()


def initial_model() -> str:
    """The name of an acoustic model that nnet3-am-init makes."""
    write_nnet(parse_config(CONFIG), "0.raw")
    Path("tree").write_text(TREE, encoding="utf-8")
    Path("topo").write_text(TOPOLOGY, encoding="utf-8")
    init("tree", "topo", "0.raw", "0.mdl")
    return "0.mdl"


def test_acoustic_model(model: str) -> None:
    """States come from the tree, and the context from the network; there are no priors."""
    found = read_acoustic_model(model)

    assert found.transition_model.tuples == ((1, 0, 0, 0), (2, 0, 1, 2))
    assert (found.left_context, found.right_context, found.priors.size) == (2, 0, 0)


def test_transition_model_of_another_model(model: str) -> None:
    """With three files, the transition model is the one at the start of the first."""
    init(model, "0.raw", "again.mdl")

    assert Path("again.mdl").read_bytes() == Path(model).read_bytes()


def test_transitions_and_priors(model: str) -> None:
    """Probabilities and priors come from the alignments; an unseen pdf's prior is the floor."""
    Path("ali.txt").write_text("a 1 1 1 2\nb 1 1 1 2\n", encoding="utf-8")

    done = train("--prior-floor=0.01", model, "ark:ali.txt", "1.mdl")

    found = read_acoustic_model("1.mdl")
    np.testing.assert_allclose(np.exp(found.transition_model.log_probs[1:3]), [0.75, 0.25])
    np.testing.assert_allclose(found.priors, np.array([1.0, 0.01, 0.01]) / 1.02)
    assert "Accumulated transition stats from 2 utterances." in done.stderr
