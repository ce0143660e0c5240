"""The Python code of the README runs as printed."""

import re
from pathlib import Path

import pytest
from nnet3_descriptors import write_nnet
from small_networks import network, stacked

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README prints the layers of a network, and writes them as pictures."""
    monkeypatch.chdir(tmp_path)
    write_nnet(network(stacked(4, "affine Affine input-dim=4 output-dim=3")), "final.raw")
    [block] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)

    exec(block, {})  # noqa: S102  the package's own README

    assert "affine" in capsys.readouterr().out
    assert Path("network.svg").read_text(encoding="utf-8").startswith("<svg")
    assert '"affine" -> "output"' in Path("network.dot").read_text(encoding="utf-8")
