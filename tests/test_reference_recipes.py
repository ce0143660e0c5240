"""What Kaldi's programs of recipes wrote, and what the tools of these names write."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from chain_graphs import largest_difference
from nnet3_training import TrainingExample, read_chain_examples
from reference_cases import REFERENCE
from tool_runs import module_of, run_tool

RECIPES = REFERENCE / "recipes"
COMMANDS = dict(line.split(": ", 1) for line in (RECIPES / "commands.txt").read_text().splitlines())


@pytest.fixture
def written(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path, str]:
    """The file that a command of Kaldi's wrote, that of the tool, and what the tool says."""
    monkeypatch.chdir(RECIPES)
    tool, *arguments, table = shlex.split(COMMANDS[request.param])
    name = table.removeprefix("ark:")
    done = run_tool(module_of(tool), *arguments, f"ark:{tmp_path / name}")
    assert done.returncode == 0, done.stderr
    return RECIPES / name, tmp_path / name, done.stderr


def of(*names: str) -> pytest.MarkDecorator:
    """Runs a test with the files of these commands."""
    return pytest.mark.parametrize("written", names, indirect=True)


Written = tuple[Path, Path, str]


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
    wanted, found, _ = written
    ours, theirs = list(read_chain_examples(found)), list(read_chain_examples(wanted))

    assert len(ours) == len(theirs) == 5
    for one, other in zip(ours, theirs, strict=True):
        assert_same_inputs(one, other, 0.0)
        [mine], [yours] = one.outputs, other.outputs
        np.testing.assert_array_equal(mine.indexes, yours.indexes)
        known, right = mine.supervision, yours.supervision
        np.testing.assert_array_equal(known.deriv_weights, right.deriv_weights)
        assert known.frames_per_sequence == right.frames_per_sequence
        assert largest_difference(known.e2e_fsts[0], right.e2e_fsts[0]) < 1e-5


def lengths(keys: list[str]) -> list[tuple[str, str]]:
    """The utterance and the number of frames of each chunk, from long keys."""
    return [(key.rsplit("-", 5)[0], key.rsplit("-", 5)[3]) for key in keys]


@of("chunks")
def test_lengths_of_chunks(written: Written) -> None:
    """Utterances have chunks of the lengths that Kaldi draws with the same seed; gaps differ."""
    _, found, _ = written
    wanted = (RECIPES / "chunks.keys").read_text().split()

    assert lengths([example.key for example in read_chain_examples(found)]) == lengths(wanted)
