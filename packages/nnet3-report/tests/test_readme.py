"""The Python code of the README runs as printed."""

import re
from pathlib import Path

import pytest
from nnet3_descriptors import parse_config, write_nnet

README = (Path(__file__).parents[1] / "README.md").read_text()

CONFIG = """
input-node name=input dim=4
component name=affine type=AffineComponent input-dim=4 output-dim=3
component-node name=affine component=affine input=input
output-node name=output input=affine
"""


def test_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The README prints the layers of a network, and writes them as pictures."""
    monkeypatch.chdir(tmp_path)
    write_nnet(parse_config(CONFIG), "final.raw")
    [block] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)

    exec(block, {})  # noqa: S102  the package's own README

    assert "affine" in capsys.readouterr().out
    assert Path("network.svg").read_text(encoding="utf-8").startswith("<svg")
    assert '"affine" -> "output"' in Path("network.dot").read_text(encoding="utf-8")
