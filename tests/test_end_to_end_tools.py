"""The tools of end-to-end training, on Kaldi's digits system."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from kaldi_tables import read_by_key, write_arrays
from nnet3_tables import read_table
from nnet3_training import read_chain_examples
from nnet3_training.chain import read_table_fst
from reference_cases import CHAIN_REFERENCE, DIGITS_EXAMPLE
from tool_runs import run_tool

DIGITS = CHAIN_REFERENCE / "digits"
FEATURES = f"ark:{DIGITS_EXAMPLE / 'test.feats.ark'}"
TRANSITIONS, NORMALIZATION = DIGITS / "0.trans_mdl", DIGITS / "normalization.fst"

make_num_fst, get_e2e_egs = (
    functools.partial(run_tool, name, expected=0)
    for name in ("chain-make-num-fst-e2e", "nnet3-chain-e2e-get-egs")
)

NINE = """
0 1 2 0 0.7
1 1 1 0 0.7
1 6 0 {word}
6 2 58 0 0.25
2 2 57 0
2 3 60 0
3 3 59 0
3 4 62 0
4 4 61 0
4 7 0 0
7 5 2 0
5 5 1 0
5 0.125
"""
"""The training graph of silence, the three phones of a word, and silence."""


@pytest.fixture
def graphs(tmp_path: Path) -> str:
    """A table of training graphs: of an utterance, of one with a lone word, of one unknown."""
    texts = NINE.format(word=10), "\n0 1 0 7\n1 2 0 8\n2 3 2 0\n3\n", NINE.format(word=0)
    entries = zip(keys_of_features(), texts, strict=True)
    path = tmp_path / "graphs.txt"
    path.write_text("".join(f"{key} {text}\n" for key, text in entries))
    return f"ark:{path}"


def keys_of_features() -> list[str]:
    """The keys of two utterances with features, and another one."""
    return [*list(lengths())[:2], "unknown"]


@functools.cache
def lengths() -> dict[str, int]:
    """The numbers of frames of the utterances."""
    return {key: len(frames) for key, frames in read_table(FEATURES)}


@pytest.mark.parametrize("table", ["ark", "ark,t"])
def test_numerator_fsts(graphs: str, tmp_path: Path, table: str) -> None:
    """Graphs become acceptors of pdfs with the weights of the normalization FST, or are empty."""
    out = tmp_path / "out.fsts"

    done = make_num_fst(TRANSITIONS, NORMALIZATION, graphs, f"{table}:{out}")

    first, lone, other = keys_of_features()
    assert done.stderr == (
        f"WARNING (chain-make-num-fst-e2e) Utterance {lone} rejected: the training graph has an "
        "arc that writes the word 7 and reads no transition-id\n"
        "LOG (chain-make-num-fst-e2e) Converted 3 Fsts with transition-id to Fsts with pdf-id and "
        "normalized.\n"
    )
    found = read_by_key(out, read_table_fst)
    assert list(found) == [first, lone, other]
    assert found[first].is_acceptor
    assert found[first].equals(found[other])
    assert set(found[first].labels.tolist()) == {1, 2, 57, 58, 59, 60, 61, 62}
    assert found[lone].num_states == 0


def allowed(*differences: int) -> str:
    """Allowed lengths that differ from those of the first two utterances."""
    known = [lengths()[key] for key in keys_of_features()[:2]]
    numbers = (length + each for length, each in zip(known, differences, strict=True))
    return f"--num-frames={','.join(map(str, numbers))}"


def test_end_to_end_examples(graphs: str, tmp_path: Path) -> None:
    """An example is a whole utterance of the nearest allowed length, with its context."""
    out = tmp_path / "out.egs"
    options = "--left-context=4", "--right-context=5", "--compress=false", allowed(2, 0)
    given = NORMALIZATION, FEATURES, graphs, TRANSITIONS

    done = get_e2e_egs(*options, *given, f"ark:{out}")

    first, lone, other = keys_of_features()
    length = lengths()[first]
    lines = done.stderr.splitlines()
    assert lines == [
        f"WARNING (nnet3-chain-e2e-get-egs) {line}"
        for line in (
            f"No exact match found for the length of utt {first} which has length: {length} "
            "closest allowed length is off by -2 frames. Will try to fix it..",
            f"For utterance {lone}, the training graph has an arc that writes the word 7 and reads "
            "no transition-id",
            f"No features for utterance {other}",
            "2 utterances had errors and could not be processed.",
        )
    ]
    model = DIGITS / "train.m0.9.raw", DIGITS / "den.fst"
    probability = run_tool("nnet3-chain-compute-prob", *model, f"ark:{out}")
    assert f"per frame, over {length + 2} frames" in probability.stderr


def test_end_to_end_ivectors(graphs: str, tmp_path: Path) -> None:
    """An example has the i-vector of one frame; missing and too few i-vectors are told apart."""
    first, second, _ = keys_of_features()
    count = lengths()[first]
    tables = FEATURES, graphs, TRANSITIONS, f"ark:{tmp_path / 'out.egs'}"
    ivectors = f"ark:{tmp_path / 'ivectors.ark'}"
    write_arrays(ivectors, {first: np.arange(2.0 * count).reshape(count, 2)})
    options = allowed(0, 0), f"--ivectors={ivectors}"

    done = get_e2e_egs(*options, *tables)

    assert f"No iVectors for utterance {second}" in done.stderr
    [example] = read_chain_examples(tmp_path / "out.egs")
    assert [io.name for io in example.inputs] == ["input", "ivector"]
    [[even, odd]] = example.inputs[1].values.round()
    assert odd == even + 1

    done = get_e2e_egs(*options, f"--online-ivector-period={count}", *tables, expected=None)

    assert f"Length difference between feats {count} and iVectors {count} exceeds" in done.stderr
