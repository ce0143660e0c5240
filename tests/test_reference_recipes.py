"""What Kaldi's programs of recipes wrote, and what the tools of these names write."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from chain_graphs import largest_difference
from kaldi_tables import read_by_key
from nnet3_tables import read_table
from nnet3_training import TrainingExample, read_chain_examples, read_examples
from nnet3_training.chain import read_table_fst
from reference_cases import REFERENCE, kaldi_commands
from tool_runs import run_tool

RECIPES = REFERENCE / "recipes"
COMMANDS = kaldi_commands(RECIPES)


@pytest.fixture
def written(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path, str]:
    """The file that a command of Kaldi's wrote, that of the tool, and what the tool says."""
    monkeypatch.chdir(RECIPES)
    tool, *arguments, table = shlex.split(COMMANDS[request.param])
    name = table.removeprefix("ark:")
    done = run_tool(tool, *arguments, f"ark:{tmp_path / name}", expected=0)
    return RECIPES / name, tmp_path / name, done.stderr


def of(*names: str) -> pytest.MarkDecorator:
    """Runs a test with the files of these commands."""
    return pytest.mark.parametrize("written", names, indirect=True)


Written = tuple[Path, Path, str]

REJECTED = "train-en-gb-x-gbclan_m6-s130-p35-seven"
REASON = "the training graph has an arc that writes the word 3 and reads no transition-id"
"""The graph that Kaldi rejects, and what the tools say of it."""


def assert_same_inputs(found: TrainingExample, wanted: TrainingExample, tolerance: float) -> None:
    """Asserts that two examples have the same inputs, with values within a tolerance."""
    assert found.key == wanted.key
    assert [io.name for io in found.inputs] == [io.name for io in wanted.inputs]
    for ours, theirs in zip(found.inputs, wanted.inputs, strict=True):
        np.testing.assert_array_equal(ours.indexes, theirs.indexes)
        np.testing.assert_allclose(ours.values, theirs.values, rtol=0, atol=tolerance)


@of("e2e", "e2e.plain")
def test_end_to_end_examples(written: Written) -> None:
    """Inputs are Kaldi's, and so are the FSTs up to the numbers of states, weights within 1e-5."""
    wanted, found, said = written
    ours, theirs = list(read_chain_examples(found)), list(read_chain_examples(wanted))

    assert f"For utterance {REJECTED}, {REASON}\n" in said
    assert len(ours) == len(theirs) == 5
    for one, other in zip(ours, theirs, strict=True):
        assert_same_inputs(one, other, 0.0)
        [mine], [yours] = one.outputs, other.outputs
        np.testing.assert_array_equal(mine.indexes, yours.indexes)
        known, right = mine.supervision, yours.supervision
        np.testing.assert_array_equal(known.deriv_weights, right.deriv_weights)
        assert known.frames_per_sequence == right.frames_per_sequence
        assert largest_difference(known.e2e_fsts[0], right.e2e_fsts[0]) < 1e-5


@of("num")
def test_numerators(written: Written) -> None:
    """FSTs are Kaldi's up to the numbers of states, and empty where Kaldi rejects the graph.

    In text they are the same.
    """
    wanted, found, said = written
    ours, theirs = (read_by_key(path, read_table_fst) for path in (found, wanted))
    tool, *arguments, _ = shlex.split(COMMANDS["num"])
    run_tool(tool, *arguments, f"ark,t:{found}.txt", expected=0)
    in_text = read_by_key(f"{found}.txt", read_table_fst)

    assert f"Utterance {REJECTED} rejected: {REASON}\n" in said
    assert list(ours) == list(theirs) == list(in_text)
    assert [fst.num_states for fst in ours.values()] == [fst.num_states for fst in theirs.values()]
    assert [key for key, fst in theirs.items() if not fst.num_states] == [REJECTED]
    assert b"\0" not in found.with_name(f"{found.name}.txt").read_bytes()
    assert all(largest_difference(fst, ours[key]) < 1e-6 for key, fst in in_text.items())
    for key, fst in theirs.items():
        if fst.num_states:
            assert largest_difference(ours[key], fst) < 1e-5


@of("post.pdfs", "post.phones", "batched.20", "batched.40")
def test_arrays(written: Written) -> None:
    """Posteriors and x-vectors are Kaldi's within 1e-4 of the largest value."""
    wanted, found, _ = written
    ours, theirs = (dict(read_table(f"ark:{path}")) for path in (found, wanted))

    assert list(ours) == list(theirs)
    for key, values in theirs.items():
        np.testing.assert_allclose(ours[key], values, rtol=0, atol=1e-4 * np.abs(values).max())


@of("add.raw", "add.den")
def test_posteriors_of_examples(written: Written) -> None:
    """Examples have Kaldi's posteriors as a further input, within 1e-4 of the largest value."""
    wanted, found, _ = written
    ours, theirs = list(read_chain_examples(found)), list(read_chain_examples(wanted))

    assert len(ours) == len(theirs) == 8
    for one, other in zip(ours, theirs, strict=True):
        assert_same_inputs(one, other, 1e-4 * float(other.inputs[-1].values.max()))
        assert np.array_equal(one.inputs[0].values, other.inputs[0].values)


@of("simple")
def test_simple_examples(written: Written) -> None:
    """The archive is Kaldi's, byte for byte."""
    wanted, found, _ = written

    assert found.read_bytes() == wanted.read_bytes()


@of("augment.flip", "augment.shift", "augment.rotate")
def test_images(written: Written) -> None:
    """Images are changed as Kaldi changes them with the same seed, within 1e-5."""
    wanted, found, _ = written
    ours, theirs = list(read_examples(found)), list(read_examples(wanted))

    assert len(ours) == len(theirs) == 11
    for one, other in zip(ours, theirs, strict=True):
        assert_same_inputs(one, other, 1e-5)


NUMBER = re.compile(r"-?[0-9]+\.[0-9]+")
OWN_LINE = re.compile(r"^(?:LOG|WARNING) \(\S+:(?:nnet3|chain)bin/\S+\) (?!Time taken)(.*)$", re.M)
"""What Kaldi's program itself says, unlike its libraries."""


@of(*(name for name in COMMANDS if name != "chunks"))
def test_logs(written: Written) -> None:
    """The tool logs and warns in Kaldi's words; numbers differ by rounding."""
    wanted, _, said = written
    lines = [line.partition(") ")[2] for line in said.splitlines()]
    log = (RECIPES / f"{wanted.name.rpartition('.')[0]}.log").read_text()

    for line in OWN_LINE.findall(log):
        if line == "Utterance rejected due to eps on input label":  # without its name
            continue
        [same] = (each for each in lines if NUMBER.sub("", each) == NUMBER.sub("", line))
        numbers, right = (list(map(float, NUMBER.findall(each))) for each in (same, line))
        assert numbers == pytest.approx(right, rel=1e-4)


def lengths(keys: list[str]) -> list[tuple[str, str]]:
    """The utterance and the number of frames of each chunk, from long keys."""
    return [(key.rsplit("-", 5)[0], key.rsplit("-", 5)[3]) for key in keys]


@of("chunks")
def test_lengths_of_chunks(written: Written) -> None:
    """Utterances have chunks of the lengths that Kaldi draws with the same seed; gaps differ."""
    _, found, _ = written
    wanted = (RECIPES / "chunks.keys").read_text().split()

    assert lengths([example.key for example in read_chain_examples(found)]) == lengths(wanted)
