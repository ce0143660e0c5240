"""Transition models made of a tree and a topology, and estimated."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest
from nnet3_descriptors.model_files import TransitionModel
from nnet3_speech.hmm import Transitions, read_tree
from nnet3_training.hmm import (
    TransitionTraining,
    initial_transition_model,
    read_hmm_topology,
    train_transitions,
)

TREE = (
    "ContextDependency 3 1 ToPdf SE -1 [ 0 ] { TE 0 4 ( CE 0 SE 1 [ 2 ] { CE 1 CE 2 } CE 3 CE 4 ) "
    "SE 2 [ 0 1 ] { CE 5 SE 1 [ 1 ] { CE 6 CE 7 } } } EndContextDependency "
)
ONE_PDF = """
<Topology>
<TopologyEntry>
<ForPhones> 1 2 3 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 <PdfClass> 1 <Transition> 1 0.75 <Transition> 2 0.25 </State>
<State> 2 <PdfClass> 0 <Transition> 2 0.5 <Transition> 3 0.5 </State>
<State> 3 </State>
</TopologyEntry>
</Topology>
"""
TWO_PDFS = """
<Topology>
<TopologyEntry>
<ForPhones> 1 2 </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State>
</TopologyEntry>
<TopologyEntry>
<ForPhones> 3 </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.3 <Transition> 1 0.3 <Transition> 2 0.4 </State>
<State> 1 <ForwardPdfClass> 1 <SelfLoopPdfClass> 0 <Transition> 1 0.5 <Transition> 2 0.5 </State>
<State> 2 </State>
</TopologyEntry>
</Topology>
"""  # noqa: E501


def initial(topology: str) -> TransitionModel:
    """The transition model of the tree and a topology."""
    return initial_transition_model(
        read_tree(io.BytesIO(TREE.encode())), read_hmm_topology(io.BytesIO(topology.encode()))
    )


def test_transition_model_of_a_tree() -> None:
    """The states, and their order, are those of Kaldi's nnet3-am-init."""
    model = initial(ONE_PDF)

    pdfs = {1: ([0, 2, 3, 4], [5, 6]), 2: ([0, 1, 3, 4], [5, 7]), 3: ([0, 2, 3, 4], [5, 7])}
    assert model.tuples == tuple(
        (phone, state, pdf, pdf)
        for phone, (outer, inner) in pdfs.items()
        for state, each in enumerate((outer, inner, outer))
        for pdf in each
    )
    assert not model.chain
    np.testing.assert_allclose(
        model.log_probs[[0, 1, 2, 9, 10]], [0, *np.log([0.5, 0.5, 0.75, 0.25])], rtol=1e-6
    )


def test_transition_model_of_pairs_of_pdfs() -> None:
    """If self-loops have their own pdfs, the states are Kaldi's pairs of pdfs."""
    model = initial(TWO_PDFS)

    pairs = {1: ([0, 2, 3, 4], [5, 6]), 2: ([0, 1, 3, 4], [5, 7]), 3: ([0, 2, 3, 4], [5, 7])}
    wanted = [
        (phone, 0, *pair) for phone, each in pairs.items() for pair in itertools.product(*each)
    ]
    assert model.tuples == (*wanted, *((3, 1, f, s) for f in (5, 7) for s in (0, 2, 3, 4)))
    assert model.chain


def test_training_of_transitions() -> None:
    """Probabilities are shares of counts; rarely seen states keep theirs; Kaldi's figures."""
    transitions = Transitions.of(initial(ONE_PDF))
    counts = np.bincount(6 * [1, 1, 1, 2, 3, 3, 4, 1, 2, 3, 3, 3, 4], minlength=61).astype(float)
    trained = train_transitions(transitions, counts)

    np.testing.assert_allclose(
        trained.model.log_probs[1:6],
        [-0.4054651, -1.098612, -0.3364722, -1.252763, -0.6931472],
        rtol=1e-6,
    )
    assert trained.improvement / trained.count == pytest.approx(0.0772263, rel=1e-5)
    assert (trained.count, trained.num_skipped, trained.num_groups) == (78, 28, 30)


def test_shared_training_of_transitions() -> None:
    """States with the same pdf get the same probabilities, not below the floor."""
    transitions = Transitions.of(initial(ONE_PDF))
    counts = np.zeros(61)
    counts[1] = 1000.0
    options = TransitionTraining(share_for_pdfs=True, transition_floor=0.02)
    trained = train_transitions(transitions, counts, options)

    with_pdf_0 = [n for n, state in enumerate(trained.model.tuples) if state[2] == 0]
    for number in with_pdf_0:
        first = transitions.first_ids[number]
        np.testing.assert_allclose(
            np.exp(trained.model.log_probs[first : first + 2]), [0.98, 0.02], rtol=1e-3
        )
    assert trained.num_floored == 1
