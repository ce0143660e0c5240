"""The examples of the package's README run and print what it shows."""

import doctest
import re
from pathlib import Path

import nnet3_optimizer
import pytest

PACKAGE = Path(__file__).resolve().parents[1]
EXAMPLE = PACKAGE.parents[1] / "examples" / "digits"


def test_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """All examples are run in order, in one session, in the folder of the example model."""
    text = (PACKAGE / "README.md").read_text()
    blocks = re.findall(r"```pycon\n(.*?)```", text, flags=re.DOTALL)
    example = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "README.md", None, 0)
    monkeypatch.chdir(EXAMPLE)
    report: list[str] = []

    results = doctest.DocTestRunner().run(example, out=report.append)

    assert results.attempted > 10
    assert "".join(report) == ""


def test_public_names() -> None:
    """The README names everything that the package exports."""
    text = (PACKAGE / "README.md").read_text()

    assert [name for name in nnet3_optimizer.__all__ if f"`{name}" not in text] == []
