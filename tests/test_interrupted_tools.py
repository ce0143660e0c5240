"""Tools that are killed as they write, and Ctrl-C while one imports its modules."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks the processes that it kills")
def test_no_file_is_half_a_file() -> None:
    """Whatever has the name of a target is whole; `killed_writers.py` kills all tools, and more."""
    program = Path(__file__).with_name("killed_writers.py")
    tools = "nnet3-copy,nnet3-copy-egs,nnet3-compute,nnet3-report"

    done = subprocess.run(
        [sys.executable, program, "--kills", "8", "--tools", tools],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.splitlines()[-1:] == ["0 faults"], done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 5


PROJECTS = sorted(Path(__file__).parents[1].glob("packages/*/pyproject.toml"))
SCRIPTS = {
    tool: entry_point
    for path in PROJECTS
    for tool, entry_point in tomllib.loads(path.read_text())["project"].get("scripts", {}).items()
}

CLICK = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except BaseException:
    raise ImportError("a module of its own failed to be initialized")
"""
"""What is imported for click: an extension that makes something else of an interruption."""


@pytest.mark.skipif(os.name != "posix", reason="sends itself a signal of POSIX")
@pytest.mark.parametrize("tool", SCRIPTS)
def test_interrupted_imports(tool: str, tmp_path: Path) -> None:
    """A tool ends with one line and status 130, whatever an import makes of an interruption."""
    (tmp_path / "click.py").write_text(CLICK)
    module, function = SCRIPTS[tool].split(":")
    # As if run on a terminal, also where these tests run in the background and Ctrl-C is ignored.
    handled = "from signal import *; signal(SIGINT, default_int_handler)"

    done = subprocess.run(
        [sys.executable, "-c", f"{handled}\nfrom {module} import {function}; {function}()"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (130, f"{tool}: interrupted\n")
