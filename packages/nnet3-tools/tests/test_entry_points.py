"""The entry points of the command-line tools."""

import signal
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from importlib.metadata import entry_points as installed
from pathlib import Path

import pytest
from nnet3_tools import __version__, entry_points

TOOL = """
import signal
while_imported = signal.getsignal(signal.SIGINT)
class tool:
    def run():
        global while_run
        while_run = signal.getsignal(signal.SIGINT)
"""


@pytest.mark.parametrize("usual", [signal.default_int_handler, signal.SIG_IGN])
def test_handling_of_interruptions(
    usual: Callable[[int, object], object] | signal.Handlers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only while modules are imported, Ctrl-C is handled differently, unless it is ignored."""
    name = f"tool_{usual.__name__ if callable(usual) else usual.name}".lower()
    (tmp_path / f"{name}.py").write_text(TOOL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(entry_points.MODULES, "tool", name)
    before = signal.signal(signal.SIGINT, usual)

    try:
        entry_points.entry_point("tool")()
        tool = __import__(name)
        assert tool.while_run == signal.getsignal(signal.SIGINT) == usual
        assert (tool.while_imported == usual) == (usual == signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGINT, before)


TOOLS = [tool for tool in installed(group="console_scripts") if "nnet3_tools" in tool.value]


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
