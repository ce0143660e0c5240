"""The commands of the README run and print the output shown, and it names all tools."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from nnet3_tables import write_table
from small_networks import SPLICED

PACKAGE = Path(__file__).resolve().parents[1]
README = (PACKAGE / "README.md").read_text()


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_commands(tmp_path: Path) -> None:
    """All commands run in order, in a shell that stops at the first failure."""
    (tmp_path / "nnet.config").write_text(SPLICED)
    with write_table(f"ark:{tmp_path}/feats.ark") as table:
        table.write("utterance1", np.ones((10, 4)))
    [block] = re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL)
    lines = block.splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    tools = Path(sys.executable).parent

    done = subprocess.run(
        ["/bin/sh", "-ec", "\n".join(commands)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [line for line in lines if not line.startswith("$ ")]


def test_names_of_tools() -> None:
    """The README names all tools that the package installs."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]

    assert [tool for tool in project["scripts"] if f"`{tool}`" not in README] == []
