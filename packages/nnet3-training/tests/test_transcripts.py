"""Lexicons, transcripts, and the supervisions and denominators that are made of them."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_speech.hmm import ContextDependency, Leaf, Table, Transitions
from nnet3_training.chain import ChainExampleMaker
from nnet3_training.chain.graphs import (
    Lexicon,
    Normalization,
    Pronunciation,
    Transcripts,
    make_normalization_fst,
    read_lexicon,
    read_transcripts,
)
from nnet3_training.egs import SplitOptions, Utterance, UtteranceSplitter
from nnet3_training.hmm import initial_transition_model, read_hmm_topology

PLAIN = {0: "<eps>", 1: "SIL", 2: "a", 3: "b", 4: "c"}
IN_WORDS = dict(
    enumerate(["<eps>", "SIL", *(f"{name}_{end}" for name in ("SIL", "a", "b") for end in "BEIS")])
)
LEXICON = Lexicon(
    words={
        "ab": (Pronunciation((2, 3)), Pronunciation((2, 3, 3), math.log(2.0))),
        "c": (Pronunciation((4,)),),
    },
    silence=1,
)
TOPOLOGY = """<Topology> <TopologyEntry> <ForPhones> 1 2 3 4 </ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State> </TopologyEntry> </Topology>
"""


def written(path: Path, text: str) -> Path:
    """The path of a new file."""
    path.write_bytes(text.encode())
    return path


def phone_sequences(lexicon: Lexicon, *words: str) -> dict[tuple[int, ...], float]:
    """The phone sequences of words, with their costs: each path through the graph once."""
    fst = lexicon.phone_graph(words)
    found: list[tuple[tuple[int, ...], float]] = []
    left: list[tuple[int, tuple[int, ...], float]] = [(fst.start, (), 0.0)]
    while left:
        state, labels, cost = left.pop()
        if np.isfinite(fst.final_costs[state]):
            found.append((labels, cost + float(fst.final_costs[state])))
        for arc in range(fst.splits[state], fst.splits[state + 1]):
            ahead = (*labels, int(fst.labels[arc])), cost + float(fst.costs[arc])
            left.append((int(fst.destinations[arc]), *ahead))
    assert len(dict(found)) == len(found)
    return dict(found)


def transcripts(tmp_path: Path) -> Transcripts:
    """Two transcripts, one empty, for a tree of four phones without context, two pdfs each."""
    branches = [None, *(Table(-1, [Leaf(2 * n), Leaf(2 * n + 1)]) for n in range(4))]
    tree = ContextDependency(context_width=1, central_position=0, to_pdf=Table(0, branches))
    topology = read_hmm_topology(written(tmp_path / "topo", TOPOLOGY))
    return Transcripts(
        words={"u": ("ab", "c"), "v": ()},
        lexicon=LEXICON,
        tree=tree,
        transitions=Transitions.of(initial_transition_model(tree, topology)),
    )


def maker_of(known: Transcripts, split: SplitOptions) -> ChainExampleMaker:
    """What makes examples with the denominator of some transcripts."""
    rng = np.random.default_rng(0)
    return ChainExampleMaker(
        splitter=UtteranceSplitter(split, rng),
        normalization=Normalization(make_normalization_fst(known.denominator(), 8)),
        rng=rng,
    )


def test_phone_sequences() -> None:
    """A word has its pronunciations at their costs; silence around words is free."""
    found = phone_sequences(LEXICON, "ab", "c")

    expected = {}
    for before, between, after in itertools.product([(), (1,)], repeat=3):
        for middle, cost in (((2, 3), 0.0), ((2, 3, 3), math.log(2.0))):
            expected[(*before, *middle, *between, 4, *after)] = pytest.approx(cost)
    assert found == expected


@given(st.lists(st.sampled_from(["ab", "c"]), min_size=1, max_size=6), st.integers(0, 99))
def test_drawn_phones(words: list[str], seed: int) -> None:
    """A drawn sequence is one of those that the words have."""
    drawn = LEXICON.drawn_phones(words, np.random.default_rng(seed))

    assert tuple(drawn) in phone_sequences(LEXICON, *words)


def test_probabilities(tmp_path: Path) -> None:
    """A second column of probabilities makes costs; of a pronunciation twice the likelier stays."""
    path = written(tmp_path / "lexiconp.txt", "x 0.5 a b\nx 1.0 c\nx 0.25 a b\n\ny 1 a\n")

    lexicon = read_lexicon(path, PLAIN)

    assert lexicon.silence == 1
    assert lexicon.words == {
        "x": (((2, 3), pytest.approx(math.log(2.0))), ((4,), 0.0)),
        "y": (((2,), 0.0),),
    }
    as_phones = read_lexicon(path, {1: "0.5", 2: "1.0", 3: "0.25", 4: "1", **{
        10 + number: name for number, name in PLAIN.items()}}, silence="")  # fmt: skip
    assert as_phones.words["x"][1].phones == (2, 14)
    assert as_phones.silence == 0


def test_phones_by_position(tmp_path: Path) -> None:
    """Phones get the endings of their places in a word, if the model has such phones."""
    path = written(tmp_path / "lexicon.txt", "x a b a b\ny a\n!SIL SIL\nz a_B b_E\n")

    lexicon = read_lexicon(path, IN_WORDS)

    names = {
        word: [IN_WORDS[phone] for phone in known[0].phones]
        for word, known in lexicon.words.items()
    }
    assert names == {
        "x": ["a_B", "b_I", "a_I", "b_E"],
        "y": ["a_S"],
        "!SIL": ["SIL_S"],
        "z": ["a_B", "b_E"],
    }
    assert IN_WORDS[lexicon.silence] == "SIL"


def test_transcripts(tmp_path: Path) -> None:
    """Keys with their words."""
    path = written(tmp_path / "text", "u1 a b\r\n\nu2\n")
    assert read_transcripts(path) == {"u1": ("a", "b"), "u2": ()}


SPOKEN = {f"u{number}": ("ab", "x") for number in range(5)} | {"v": ("y", "x", "y")}


def test_missing_words() -> None:
    """A word stands for those that the lexicon lacks."""
    lenient = Lexicon(words=LEXICON.words, oov="c")

    lenient.check(SPOKEN)
    assert phone_sequences(lenient, "x") == {(4,): 0.0}


def test_whole_examples(tmp_path: Path) -> None:
    """An example is a whole utterance; what the rounded length adds at its end has no weight."""
    known = transcripts(tmp_path)
    split = SplitOptions(
        num_frames=(30,), frame_subsampling_factor=3, left_context=2, right_context=1
    )
    features = np.random.default_rng(1).standard_normal((50, 4), dtype=np.float32)
    supervision = known.supervision("u", 50, 3)

    utterance = Utterance(key="u", features=features, supervision=supervision)
    [example] = maker_of(known, split).examples(utterance)

    assert example.key == "u-0"
    padded = np.pad(features, ((2, 5), (0, 0)), mode="edge")  # 18 frames of output
    np.testing.assert_array_equal(example.inputs[0].values, padded)
    made = example.outputs[0].supervision
    np.testing.assert_array_equal(made.deriv_weights, [1.0] * 17 + [0.0])
    assert set(made.e2e_fsts[0].labels.tolist()) == set(range(1, 9))


def test_examples_beyond_the_denominator(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Words that the denominator cannot say keep their paths, without its weights, as in Kaldi."""
    known = transcripts(tmp_path)
    other = attrs.evolve(known, words={"u": ("c",)})
    supervision = known.supervision("u", 50, 1)
    utterance = Utterance(key="u", features=np.zeros((50, 4), np.float32), supervision=supervision)

    [example] = maker_of(other, SplitOptions(num_frames=(30,))).examples(utterance)

    assert example.outputs[0].supervision.fsts[0].equals(supervision.fsts[0])
    assert "utterance u, FST was empty after composing with normalization FST" in caplog.text


def test_lengths(tmp_path: Path) -> None:
    """Supervisions are at most an eighth longer than utterances, and have few lengths."""
    known = transcripts(tmp_path)

    lengths = {frames: known.supervision("u", frames, 1).frames_per_sequence
               for frames in range(4, 129)}  # fmt: skip

    assert all(frames <= length <= frames * 9 / 8 for frames, length in lengths.items())
    assert {lengths[frames] for frames in range(65, 129)} == {*range(72, 129, 8)}
