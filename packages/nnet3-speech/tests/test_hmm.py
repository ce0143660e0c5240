"""Trees and transition models: reading, looking up, and damage."""

from __future__ import annotations

import io
import itertools

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_descriptors.model_files import HmmState, TransitionModel
from nnet3_speech import HmmError
from nnet3_speech.hmm import (
    ContextDependency,
    Leaf,
    PdfLabels,
    PhoneState,
    Split,
    Table,
    Transitions,
    read_tree,
)
from nnet3_speech.hmm.tree import EventMap

LEAVES = st.integers(0, 50).map(Leaf)
KEYS = st.integers(-1, 2)


def nodes(children: st.SearchStrategy[EventMap]) -> st.SearchStrategy[EventMap]:
    """Tables and questions above some nodes."""
    tables = st.builds(Table, KEYS, st.lists(st.none() | children, max_size=4))
    values = st.lists(st.integers(0, 9), max_size=3)
    return tables | st.builds(Split, KEYS, values, children, children)


TREES = st.builds(
    ContextDependency,
    context_width=st.just(3),
    central_position=st.integers(0, 2),
    to_pdf=st.recursive(LEAVES, nodes, max_leaves=12),
)


def answer(node: EventMap | None, event: dict[int, int]) -> int | None:
    """The answer of a node to an event, by the definition of its kind."""
    if node is None or isinstance(node, Leaf):
        return None if node is None else node.pdf
    if isinstance(node, Table):
        value = event[node.key]
        return answer(node.branches[value], event) if value < len(node.branches) else None
    return answer(node.yes if event[node.key] in node.yes_values else node.no, event)


@settings(max_examples=2 * settings.default.max_examples // 5)
@given(TREES, st.tuples(*[st.integers(0, 5)] * 3), st.integers(0, 3))
def test_answers_of_trees(tree: ContextDependency, window: tuple[int, ...], state: int) -> None:
    """A tree answers by its nodes; if it has no answer, an error names the phones."""
    wanted = answer(tree.to_pdf, {-1: state, **dict(enumerate(window))})

    if wanted is None:
        phones = " ".join(map(str, window))
        with pytest.raises(HmmError, match=f"no pdf for class {state} of the phones {phones}"):
            tree.pdf(window, state)
    else:
        assert tree.pdf(window, state) == wanted


@settings(max_examples=settings.default.max_examples // 5)
@given(TREES, st.integers(0, 2), st.integers(0, 2))
def test_pairs_of_pdfs(tree: ContextDependency, forward: int, self_loop: int) -> None:
    """Each pair that some context has is found, and none of other pdfs; a wide window costs little.

    Where questions contradict each other, there may be pairs that no context has, as in Kaldi.
    """
    phones = range(1, 5)
    found = set(tree.pdf_pairs(2, forward, self_loop, phones))
    windows = itertools.product((0, *phones), repeat=3)
    expected = {
        tuple(
            answer(tree.to_pdf, {-1: of, **dict(enumerate(window))}) for of in (forward, self_loop)
        )
        for window in windows
        if window[tree.central_position] == 2
    }
    wide = attrs.evolve(tree, context_width=32)

    assert {pair for pair in expected if None not in pair} <= found
    assert found <= set(itertools.product(tree.pdfs(2, forward), tree.pdfs(2, self_loop)))
    assert set(wide.pdf_pairs(2, forward, self_loop, phones)) == found


TEXT = (
    "ContextDependency 2 1 ToPdf TE 1 3 ( NULL CE 0 SE 0 [ 1 2 ] { CE 1 CE 2 } ) "
    "EndContextDependency "
)


def test_tree_in_text() -> None:
    """Blanks and line ends do not matter; old trees begin with lengths, which are skipped."""
    tree = read_tree(io.BytesIO(TEXT.encode()))
    old = TEXT.replace("ToPdf", "ToLength CE 3\nToPdf")

    assert tree.pdf((1, 2), 0) == 1
    assert tree.pdf((3, 2), 0) == 2
    assert read_tree(io.BytesIO(old.encode())) == tree


# ---- transition models ----

STATES = (
    HmmState(forward_pdf_class=0, self_loop_pdf_class=1, transitions=((0, 0.25), (1, 0.75))),
    HmmState(forward_pdf_class=-1, self_loop_pdf_class=-1, transitions=()),
)
MODEL = TransitionModel(
    phones=(1, 2),
    phone_entries=(-1, 0, 0),
    entries=(STATES,),
    tuples=((1, 0, 0, 1), (2, 0, 2, 3)),
    log_probs=np.array([0.0, *np.log([0.25, 0.75, 0.5, 0.5])], dtype=np.float32),
    chain=True,
)


def test_transitions_are_numbered() -> None:
    """Each transition has a number, a pdf of its kind, a phone and a cost."""
    found = Transitions.of(MODEL)

    assert found.num_ids == 4
    assert found.num_pdfs == 4
    assert found.pdfs.tolist() == [-1, 1, 0, 3, 2]
    assert found.phones.tolist() == [0, 1, 1, 2, 2]
    assert found.self_loops.tolist() == [1, 3]
    assert found.first_ids.tolist() == [1, 3]
    np.testing.assert_allclose(found.costs[1:], -np.log([0.25, 0.75, 0.5, 0.5]), rtol=1e-6)
    np.testing.assert_allclose(found.forward_costs, -np.log([0.75, 0.5]), rtol=1e-6)
    assert found.state(2, 0, 2, 3) == 1


# ---- labels of pdfs ----


def test_labels_of_pdfs() -> None:
    """Each pdf has its phones and states, with names or numbers; self-loops are told apart."""
    labels = PdfLabels.of(MODEL, {0: "<eps>", 1: "SIL", 2: "a", 3: "b"})

    assert (labels.phones, len(labels)) == (("SIL", "a"), 4)
    assert labels[0] == (PhoneState("SIL", 0),)
    assert labels[3] == (PhoneState("a", 0, is_self_loop=True),)
    assert PdfLabels.of(MODEL).phones == ("1", "2")


SHARED = attrs.evolve(
    MODEL,
    phones=(1, 2, 3),
    phone_entries=(-1, 0, 0, 0),
    tuples=((1, 0, 0, 1), (2, 0, 2, 2), (3, 0, 2, 1)),
    log_probs=np.zeros(7),
)
"""Phones 2 and 3 share pdf 2; phones 1 and 3 share pdf 1."""


def test_phones_that_share_pdfs() -> None:
    """Each gets an equal part, so that rows sum to 1; phones of one name are one phone."""
    outputs = np.log(np.array([[0.5, 0.2, 0.3], [0.1, 0.8, 0.1]], np.float32))
    apart = PdfLabels.of(SHARED)
    merged = PdfLabels.of(SHARED, {1: "SIL", 2: "a", 3: "a"})

    assert apart[2] == (PhoneState("2", 0), PhoneState("3", 0))
    np.testing.assert_allclose(
        apart.phone_posteriors(outputs + 7.0), [[0.6, 0.15, 0.25], [0.5, 0.05, 0.45]], rtol=1e-5
    )
    assert merged[2] == (PhoneState("a", 0),)
    np.testing.assert_allclose(
        merged.phone_posteriors(outputs[None]), [[[0.6, 0.4], [0.5, 0.5]]], rtol=1e-5
    )


@settings(max_examples=settings.default.max_examples // 5)
@given(
    st.lists(st.tuples(*[st.integers(1, 4)] * 2, *[st.integers(0, 9)] * 2), min_size=5),
    st.integers(0, 99),
)
def test_posteriors_of_phones(tuples: list[tuple[int, int, int, int]], seed: int) -> None:
    """The parts of a row are those of a plain loop over pdfs and the phones that share them."""
    labels = PdfLabels.of(attrs.evolve(MODEL, tuples=tuple(tuples)))
    outputs = np.random.default_rng(seed).normal(size=(3, len(labels))).astype(np.float32)
    pdfs = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    expected = np.zeros((3, len(labels.phones)))
    for pdf in range(len(labels)):
        sharing = {str(phone) for phone, _, *both in tuples if pdf in both}
        for phone in sharing:
            expected[:, labels.phones.index(phone)] += pdfs[:, pdf] / len(sharing)

    np.testing.assert_allclose(labels.phone_posteriors(outputs), expected, rtol=1e-5, atol=1e-6)
    assert {each.phone for pdf in range(len(labels)) for each in labels[pdf]} == set(labels.phones)
