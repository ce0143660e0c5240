"""Runs of command-line tools within this process, which has loaded their imports already."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from nnet3_tools import entry_points


def run_tool(
    tool: str, *arguments: str | Path, expected: int | None = None
) -> CompletedProcess[str]:
    """Runs a tool, and asserts that it ends with the expected status, if any.

    Tests of how a tool begins, is interrupted or uses its standard streams start processes.

    Returns:
        Status, output and messages.
    """
    command, status = [tool, *map(str, arguments)], None
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    run = entry_points.command_of(tool).run
    with (
        warnings.catch_warnings(),
        mock.patch.object(sys, "argv", command),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        warnings.simplefilter("default", UserWarning)  # those that users see; pytest raises them
        try:
            run()
        except SystemExit as end:
            status = end.code
    out.seek(0)
    done = CompletedProcess(command, int(status or 0), out.read(), err.getvalue())
    assert expected in (None, done.returncode), done.stderr
    return done


def program(tool: str, *arguments: str | Path) -> list[str | Path]:
    """The command that runs a tool in a process of its own."""
    text = f"from nnet3_tools.entry_points import {tool.replace('-', '_')} as run\nrun()"
    return [sys.executable, "-c", text, *arguments]


def mistaken(tool: str, *arguments: str | Path) -> None:
    """Runs a tool that must end with status 255, without output; prints what it says.

    Of wrong usage this is the error, without the line of usage before it.
    """
    done = run_tool(tool, *arguments, expected=255)
    assert (done.stdout, "Traceback" in done.stderr) == ("", False)
    print(done.stderr.rpartition(" for help.\n\n")[2], end="")
