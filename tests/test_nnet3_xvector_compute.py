"""The tool nnet3-xvector-compute, run with Kaldi's own command lines."""

import subprocess
import sys
from pathlib import Path

import kaldi_native_io
import numpy as np
import pytest
from reference_cases import TOOLS_REFERENCE

TOOL = Path(sys.executable).with_name("nnet3-xvector-compute")


def kaldi_commands() -> list[list[str]]:
    """The command lines that gave Kaldi's vectors: options and arguments."""
    lines = (TOOLS_REFERENCE / "commands.txt").read_text().splitlines()
    commands = [line.partition(": ")[2].split() for line in lines]
    return [command[1:] for command in commands if command[0] == TOOL.name]


def vectors(path: str | Path) -> dict[str, np.ndarray]:
    """The vectors of an archive by key, in its order."""
    with kaldi_native_io.SequentialFloatVectorReader(f"ark:{path}") as reader:
        return {key: np.array(vector) for key, vector in reader}


@pytest.mark.parametrize("command", kaldi_commands(), ids=lambda command: command[-1])
def test_same_vectors_as_kaldi(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole utterances and means over chunks are Kaldi's, within 1e-5 relative."""
    monkeypatch.chdir(TOOLS_REFERENCE)
    *arguments, wspecifier = command

    done = subprocess.run(
        [TOOL, *arguments, f"ark:{tmp_path / 'vectors.ark'}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    expected = vectors(wspecifier.removeprefix("ark:"))
    actual = vectors(tmp_path / "vectors.ark")
    assert list(expected) == list(actual)
    for key, vector in expected.items():
        np.testing.assert_allclose(actual[key], vector, rtol=0, atol=1e-5 * np.abs(vector).max())


def test_short_utterances_fail_without_padding(tmp_path: Path) -> None:
    """Utterances that are too short are named with their lengths, and not written."""
    done = subprocess.run(
        [
            TOOL,
            "--pad-input=false",
            "--min-chunk-size=100000",
            TOOLS_REFERENCE / "xvector-stats.raw",
            f"ark:{TOOLS_REFERENCE / 'feats6.ark'}",
            f"ark:{tmp_path / 'vectors.ark'}",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 1
    keys = list(vectors(TOOLS_REFERENCE / "xvector.whole.ark"))
    lines = [line for line in done.stderr.splitlines() if "fewer than the least" in line]
    assert len(lines) == len(keys)
    assert all(f"'{key}'" in line for key, line in zip(keys, lines, strict=True))
    assert vectors(tmp_path / "vectors.ark") == {}
