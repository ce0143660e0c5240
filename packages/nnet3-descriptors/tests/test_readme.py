"""The examples of the package's README run and print what it shows."""

import doctest
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]
EXAMPLE = PACKAGE.parents[1] / "examples" / "digits"


def test_examples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All examples are run in order, in one session, in the folder of the example model."""
    text = (PACKAGE / "README.md").read_text().replace("/tmp/", f"{tmp_path}/")
    blocks = re.findall(r"```pycon\n(.*?)```", text, flags=re.DOTALL)
    example = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "README.md", None, 0)
    monkeypatch.chdir(EXAMPLE)
    report: list[str] = []

    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=report.append)

    assert results.attempted > 10
    assert "".join(report) == ""
