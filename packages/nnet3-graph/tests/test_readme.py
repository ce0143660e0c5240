"""The README names what the package exports; tests/test_readmes.py runs its examples."""

from pathlib import Path

import nnet3_graph

PACKAGE = Path(__file__).resolve().parents[1]


def test_public_names() -> None:
    """The README names all exports of the package."""
    text = (PACKAGE / "README.md").read_text()

    assert [name for name in nnet3_graph.__all__ if f"`{name}" not in text] == []
