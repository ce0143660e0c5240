"""Runs of command-line tools within this process, which has loaded their imports already."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import sys
import warnings
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from nnet3_tools import entry_points


def module_of(tool: str) -> str:
    """The module in nnet3_tools of a tool, as `run_tool` takes it."""
    main = getattr(entry_points, tool.replace("-", "_"))
    held = inspect.getclosurevars(main).nonlocals
    module: str = held["module"].removeprefix("nnet3_tools.")
    return f"{module}:{tool}" if held["arguments"] else module


def run_tool(module: str, *arguments: str | Path) -> CompletedProcess[str]:
    """Runs a tool, given by its module in nnet3_tools; returns status, output and messages.

    A tool of a module of several is given as MODULE:TOOL.

    Tests of how a tool begins, is interrupted or uses its standard streams start processes.
    """
    module, _, tool = module.partition(":")
    name = tool or module.rpartition(".")[2].replace("_", "-")
    command, status = [name, *map(str, arguments)], None
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    main = importlib.import_module(f"nnet3_tools.{module}").main
    with (
        warnings.catch_warnings(),
        mock.patch.object(sys, "argv", command),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        warnings.simplefilter("default", UserWarning)  # those that users see; pytest raises them
        try:
            main(*filter(None, [tool]))
        except SystemExit as end:
            status = end.code
    out.seek(0)
    return CompletedProcess(command, int(status or 0), out.read(), err.getvalue())
