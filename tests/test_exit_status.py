"""The exit status of every tool in every situation: that of Kaldi's tool of this name.

Kaldi's tools return 0 if they could do something, 1 if nothing succeeded or if the number of
arguments is wrong, and 255 (-1) after an exception; where Kaldi aborts, the tools here return 255.
`nnet3-chain-fine-tune`, `-compute-looped`, `-report`, `-to-onnx` and `-train-recipe` are no tools
of Kaldi's, and keep to the same rules. The statuses stand in `tool_commands.txt`.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from nnet3_tools import entry_points
from tool_commands import LINES, ROWS, STATUSES, command_line, write_inputs
from tool_runs import run_tool

ANY_NUMBER = {
    "nnet-get-feature-transform",
    "nnet3-average",
    "nnet3-chain-combine",
    "nnet3-chain-copy-egs",
    "nnet3-combine",
    "nnet3-copy-egs",
    "nnet3-get-egs-simple",
    "nnet3-transcribe",
    "nnet3-xvector-get-egs",
}
"""The tools that take any number of arguments from a certain one on."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the input of the commands."""
    path = tmp_path_factory.mktemp("tools")
    write_inputs(path)
    return path


def test_every_tool_is_here() -> None:
    """The table has each tool once."""
    tools = {tool for tool in entry_points.MODULES if not tool.startswith("cuda-")}

    assert sorted(tools) == list(LINES)
    assert len(ROWS) == len(LINES)


@pytest.mark.parametrize(("tool", "situation", "status"), STATUSES)
def test_status(
    tool: str, situation: str, status: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool ends with Kaldi's status if all, some or none of its input is good."""
    monkeypatch.chdir(folder)
    Path("out").unlink(missing_ok=True)

    run_tool(*shlex.split(command_line(tool, situation)), expected=status)

    if status:  # an archive of nothing is of no use, and an old one stays
        assert not Path("out").exists() or Path("out").stat().st_size


@pytest.mark.parametrize("tool", LINES)
@pytest.mark.usefixtures("in_empty_folder")
def test_status_after_an_error(tool: str) -> None:
    """Without its input, and with an option that does not exist, a tool ends with status 255.

    With too few or too many arguments it shows its usage, and ends with status 1.
    """
    _, *arguments = shlex.split(command_line(tool))
    nowhere = [
        argument if argument.startswith("-") else f"ark:{name}" if ":" in argument else name
        for number, argument in enumerate(arguments)
        for name in [f"nowhere/{number}"]
    ]

    run_tool(tool, *nowhere, expected=255)
    run_tool(tool, "--no-such-option", *arguments, expected=255)
    options = [argument for argument in arguments if argument.startswith("--")]
    wrong = [[], options] if tool in ANY_NUMBER else [[], options, [*options, *["a"] * 6]]
    for given in wrong:
        assert "Usage: " in run_tool(tool, *given, expected=1).stderr
