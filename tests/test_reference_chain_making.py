"""The data of chain models, made as Kaldi makes it: phone LM, denominator, supervisions."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from chain_graphs import largest_difference
from chain_reference import CASES
from kaldi_tables import read_by_key
from nnet3_speech.hmm import (
    ContextDependency,
    Transitions,
    read_transitions,
    read_tree,
)
from nnet3_training import (
    Fst,
    read_chain_examples,
    read_chain_supervision,
    read_fst,
)
from nnet3_training.chain import read_supervision
from nnet3_training.chain.graphs import (
    Normalization,
    ProtoSupervision,
    SupervisionOptions,
    SupervisionSplitter,
    make_denominator_fst,
    make_normalization_fst,
    supervision_of,
    unconstrained,
)
from reference_cases import CHAIN_REFERENCE

DIGITS = CHAIN_REFERENCE / "digits"
UNCONSTRAINED = CHAIN_REFERENCE / "unconstrained"


def name(path: Path) -> str:
    """The name of a folder within the names of tests."""
    return path.name


@functools.cache
def system(folder: Path) -> tuple[ContextDependency, Transitions]:
    """The tree and the transition model of a folder."""
    [model] = [*folder.glob("transition.mdl"), *folder.glob("0.trans_mdl")]
    return read_tree(folder / "tree"), read_transitions(model)


@pytest.mark.parametrize("folder", [*CASES, DIGITS], ids=name)
def test_denominator(folder: Path) -> None:
    """The denominator FST is Kaldi's up to the numbers of states, weights within 1e-6."""
    found = make_denominator_fst(read_fst(folder / "phone_lm.fst"), *system(folder))

    assert largest_difference(found, read_fst(folder / "den.fst")) < 1e-6


@pytest.mark.parametrize("folder", [*CASES, DIGITS], ids=name)
def test_normalization_fst(folder: Path) -> None:
    """The normalization FST is Kaldi's up to the numbers of states, weights within 1e-5."""
    _, transitions = system(folder)
    found = make_normalization_fst(read_fst(folder / "den.fst"), transitions.num_pdfs)

    assert largest_difference(found, read_fst(folder / "normalization.fst")) < 1e-5


@pytest.mark.parametrize("folder", CASES, ids=name)
def test_supervisions_of_sequences(folder: Path) -> None:
    """Alignments of random phones with context become Kaldi's supervisions, with weights."""
    tree, transitions = system(folder)
    normalization = Normalization(read_fst(folder / "normalization.fst"))
    options = SupervisionOptions(left_tolerance=2, right_tolerance=2, frame_subsampling_factor=3)
    for number, phones in enumerate(json.loads((folder / "case.json").read_text())["phones"]):
        proto = ProtoSupervision.from_alignment([tuple(each) for each in phones], options)
        found = normalization.added(supervision_of(proto, tree, transitions))
        wanted = read_chain_supervision(folder / f"single{number}.bin")

        assert largest_difference(found.fst, wanted.fst) < 1e-5
        assert found.frames_per_sequence == wanted.frames_per_sequence
        assert found.label_dim == wanted.label_dim


@pytest.mark.parametrize(
    ("case", "folder", "count", "is_normalized"),
    [
        ("digits", DIGITS, 16, True),
        ("23", CHAIN_REFERENCE / "random" / "23", 8, True),
        ("lattices", DIGITS, 4, False),
    ],
    ids=["digits", "23", "lattices"],
)
def test_unconstrained(case: str, folder: Path, count: int, is_normalized: bool) -> None:
    """Parts without times are those of nnet3-chain-get-egs --transition-model, costs within 1e-5.

    Kaldi draws the path of `alignment_pdfs` from the system's random generator; ours is a path of
    the part, too.
    """
    _, transitions = system(folder)
    normalization = Normalization(read_fst(folder / "normalization.fst"))
    whole = read_by_key(UNCONSTRAINED / f"{case}.sup.ark", read_supervision)
    rng = np.random.default_rng(1)
    examples = list(read_chain_examples(UNCONSTRAINED / f"{case}.cegs.ark"))
    assert len(examples) == count
    for example in examples:
        key, _, first = example.key.rpartition("-")
        wanted = example.outputs[0].supervision
        part = SupervisionSplitter(whole[key]).part(int(first) // 3, wanted.frames_per_sequence)
        found = unconstrained(part, transitions, rng)
        assert is_path(found.alignment_pdfs, part.fst, transitions)
        assert is_path(wanted.alignment_pdfs, part.fst, transitions)
        if is_normalized:
            found = normalization.added(found)
        assert found.fst is None
        assert largest_difference(found.e2e_fsts[0], wanted.e2e_fsts[0]) < 1e-5
        assert found.label_dim == wanted.label_dim == transitions.num_pdfs
        assert found.frames_per_sequence == wanted.frames_per_sequence


def is_path(pdfs: Sequence[int], fst: Fst, transitions: Transitions) -> bool:
    """Whether an acceptor of transition-ids, with epsilons at its start, has a path of the pdfs."""
    columns = (fst.sources, fst.labels, fst.destinations)
    moves = list(zip(*(column.tolist() for column in columns), strict=True))
    states = {fst.start} | {to for _, label, to in moves if label == 0}
    for pdf in pdfs:
        states = {
            to for source, label, to in moves
            if label and source in states and transitions.pdfs[label] == pdf
        }  # fmt: skip
    return any(np.isfinite(fst.final_costs[state]) for state in states)
