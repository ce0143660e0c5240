"""Trees and transition models: writing, reading, looking up, and damage."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_descriptors import ModelFileError
from nnet3_descriptors.model_files import HmmState, TransitionModel
from nnet3_speech import HmmError
from nnet3_speech.hmm import (
    ContextDependency,
    Leaf,
    Split,
    Table,
    Transitions,
    read_transitions,
    read_tree,
    topology_of,
    write_tree,
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


@pytest.mark.parametrize("binary", [True, False])
def test_trees_are_read_as_they_were_written(binary: bool, tmp_path: Path) -> None:
    """Each kind of node, and a missing branch, is written and read as binary and text."""

    @settings(max_examples=settings.default.max_examples // 4)
    @given(TREES)
    def check(tree: ContextDependency) -> None:
        write_tree(tree, tmp_path / "tree", binary=binary)
        assert read_tree(tmp_path / "tree") == tree

    check()


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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ToPdf", "ToPhone", "unexpected token; expected 'ToPdf', found 'ToPhone'"),
        ("CE 0", "XE 0", "this is no node of a tree; expected NULL or CE or TE or SE, found 'XE'"),
        ("TE 1 3", "TE 1 -3", "impossible number of branches"),
        ("{ CE 1", "{ NULL", "a question has only one answer"),
        ("2 1 ToPdf", "99 1 ToPdf", "the context width must be 1 to 32, found 99"),
        ("2 1 ToPdf", "2 2 ToPdf", "the central position must be 0 to 1, found 2"),
        ("ToPdf TE 1 3 ( NULL CE 0 SE 0 [ 1 2 ] { CE 1 CE 2 } )", "ToPdf NULL", "has no root"),
        ("CE 0", "SE 0 [ ] { " * 500, "more than 400 nodes deep"),
    ],
)
def test_damaged_trees(old: str, new: str, message: str) -> None:
    """A damaged tree gives one error that says what is wrong."""
    assert old in TEXT
    with pytest.raises(ModelFileError) as raised:
        read_tree(io.BytesIO(TEXT.replace(old, new).encode()))

    assert message in str(raised.value)


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tuples": ((3, 0, 0, 1),)}, "the topology has no phone 3"),
        ({"tuples": ((1, 2, 0, 1),)}, "transition state 1: phone 1 has 2 states, found state 2"),
        (
            {"tuples": ((1, 0, -1, 1),)},
            "transition state 1: expected pdfs of 0 to 16777215, found -1",
        ),
        ({"tuples": MODEL.tuples[:1]}, "expected 3 log-probabilities of transitions, found 5"),
        ({"log_probs": np.full(5, np.nan)}, "a log-probability of a transition is above 0 or not"),
        ({"entries": ((),)}, "the topology of phone 1 has no states"),
        (
            {"entries": ((attrs.evolve(STATES[0], transitions=((4, 1.0),)),),)},
            "the topology of phone 1: state 0 leads to 4, which is none of 1 states",
        ),
    ],
)
def test_transition_models_that_make_no_sense(changes: dict[str, object], message: str) -> None:
    """A damaged transition model gives one error that says what is wrong."""
    with pytest.raises(HmmError) as raised:
        Transitions.of(attrs.evolve(MODEL, **changes))

    assert message in str(raised.value)


def test_states_that_there_are_not() -> None:
    """A state that the model lacks, and a phone that the topology lacks, are named."""
    found = Transitions.of(MODEL)
    with pytest.raises(HmmError, match=r"no state 0 of phone 1 with the pdfs 5 and 6"):
        found.state(1, 0, 5, 6)
    with pytest.raises(HmmError, match="the topology has no phone 0"):
        topology_of(MODEL, 0)


def test_a_file_without_a_transition_model() -> None:
    """The error says what was expected."""
    with pytest.raises(ModelFileError, match="<TransitionModel>"):
        read_transitions(io.BytesIO(b"<Nnet3> "))
