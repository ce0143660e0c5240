"""The README's examples run and print the output shown, and it names all exports."""

import doctest
from pathlib import Path

import nnet3_speech
import pytest

PATH = Path(__file__).resolve().parents[1] / "README.md"


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All examples run in order, in one session."""
    monkeypatch.chdir(tmp_path)

    results = doctest.testfile(str(PATH), module_relative=False)

    assert results.failed == 0


def test_public_names() -> None:
    """The README names all exports of the package."""
    text = PATH.read_text()
    assert [name for name in nnet3_speech.__all__ if name not in text] == []
