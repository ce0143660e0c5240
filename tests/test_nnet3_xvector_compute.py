"""The tool nnet3-xvector-compute, run with Kaldi's own command lines."""

import sys
from pathlib import Path

import numpy as np
import pytest
from kaldi_tables import read_vectors
from other_processes import printed_by
from reference_cases import TOOLS_REFERENCE, kaldi_commands

TOOL = Path(sys.executable).with_name("nnet3-xvector-compute")
LINES = map(str.split, kaldi_commands(TOOLS_REFERENCE).values())
COMMANDS = [arguments for tool, *arguments in LINES if tool == TOOL.name]
"""Options and arguments of the command lines that gave Kaldi's vectors."""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[-1])
def test_same_vectors_as_kaldi(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole utterances and means over chunks are Kaldi's, within 1e-5 relative."""
    monkeypatch.chdir(TOOLS_REFERENCE)
    *arguments, wspecifier = command

    printed_by([TOOL, *arguments, f"ark:{tmp_path / 'vectors.ark'}"], timeout=120)

    expected = read_vectors(wspecifier.removeprefix("ark:"))
    actual = read_vectors(tmp_path / "vectors.ark")
    assert list(expected) == list(actual)
    for key, vector in expected.items():
        np.testing.assert_allclose(actual[key], vector, rtol=0, atol=1e-5 * np.abs(vector).max())
