"""The bar of the tools, and the lines above it."""

from __future__ import annotations

import io
import os
import sys

import pytest
from nnet3_tools.progress import Bar


@pytest.mark.skipif(os.name != "posix", reason="makes a terminal as POSIX systems have")
@pytest.mark.parametrize("size", [(0, 0), (24, 90)])
def test_a_terminal(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar appears also on a terminal that says that it has no columns and no rows."""
    import fcntl
    import struct
    import termios

    control, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    with os.fdopen(terminal, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        bar = Bar(4, " utterances")
        bar.advance(2, "two of them")
        bar.say("a line")
        bar.close()
        bar.say("the end")
        stream.flush()
        data = b""
        while b"the end\r\n" not in data:
            data += os.read(control, 1 << 16)
        shown = data.decode()
    os.close(control)

    assert bar.is_shown
    assert "| 2/4 [" in shown
    assert "two of them" in shown
    assert "\ra line\r\n" in shown
    assert shown.endswith("\rthe end\r\n")


def test_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no terminal is there are only the lines."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    bar = Bar(4, " utterances")
    bar.advance(2)
    bar.say("a line")
    bar.close()

    assert not bar.is_shown
    assert sys.stderr.getvalue() == "a line\n"
