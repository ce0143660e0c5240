"""The examples of the package's README run and print the output shown."""

import doctest
from pathlib import Path

import nnet3_optimizer
import pytest

PACKAGE = Path(__file__).resolve().parents[1]
EXAMPLE = PACKAGE.parents[1] / "examples" / "digits"


def test_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """All examples run in order, in one session, in the folder of the example model."""
    monkeypatch.chdir(EXAMPLE)

    results = doctest.testfile(str(PACKAGE / "README.md"), module_relative=False)

    assert results.attempted > 10
    assert results.failed == 0


def test_public_names() -> None:
    """The README names all exports of the package."""
    text = (PACKAGE / "README.md").read_text()

    assert [name for name in nnet3_optimizer.__all__ if f"`{name}" not in text] == []
