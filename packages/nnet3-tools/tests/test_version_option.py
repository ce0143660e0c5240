"""Every tool prints its version."""

import sys
from importlib.metadata import EntryPoint, entry_points

import pytest
from nnet3_tools import __version__

TOOLS = [tool for tool in entry_points(group="console_scripts") if "nnet3_tools" in tool.value]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_version(
    tool: EntryPoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The version has the names of the tool and the package."""
    monkeypatch.setattr(sys, "argv", [tool.name, "--version"])

    with pytest.raises(SystemExit) as end:
        tool.load()()

    assert not end.value.code
    assert capsys.readouterr().out == f"{tool.name} (nnet3-tools) {__version__}\n"
