"""The entry points of the command-line tools."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from nnet3_tools import entry_points

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
