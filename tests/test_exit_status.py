"""The exit status of every tool in every situation: that of Kaldi's tool of this name.

Kaldi's tools return 0 if they could do something, 1 if nothing succeeded or if the number of
arguments is wrong, and 255 (-1) after an exception; where Kaldi aborts, the tools here return 255.
`nnet3-chain-fine-tune`, `-compute-looped`, `-report`, `-to-onnx` and `-train-recipe` are no tools
of Kaldi's, and keep to the same rules.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from nnet3_tools import entry_points
from tool_commands import LINES, command_line, write_inputs
from tool_runs import run_tool

STATUSES = """
TOOL                         FINE  SOME  NONE
apply-cmvn-sliding              0     0     1
chain-est-phone-lm              0     -     -
chain-get-supervision           0     0     1
chain-make-den-fst              0     -     -
chain-make-num-fst-e2e          0     0     0
compute-fbank-feats             0     0     1
compute-mfcc-feats              0     0     1
compute-vad                     0     0     1
ivector-extract-online2         0     0     1
ivector-mean                    0     0     1
ivector-plda-scoring            0     0     1
nnet-get-feature-transform      0     -     -
nnet3-acc-lda-stats             0     -   255
nnet3-am-adjust-priors          0     -     -
nnet3-am-copy                   0     -     -
nnet3-am-info                   0     -     -
nnet3-am-init                   0     -     -
nnet3-am-train-transitions      0     -   255
nnet3-average                   0     -     -
nnet3-chain-acc-lda-stats       0     -   255
nnet3-chain-add-post-to-egs     0     -     1
nnet3-chain-combine             0     -   255
nnet3-chain-compute-post        0     0     1
nnet3-chain-compute-prob        0     -     1
nnet3-chain-copy-egs            0     0     1
nnet3-chain-e2e-get-egs         0     0     0
nnet3-chain-fine-tune           0     -   255
nnet3-chain-get-egs             0     0     1
nnet3-chain-merge-egs           0     0     1
nnet3-chain-normalize-egs       0     -     1
nnet3-chain-shuffle-egs         0     -     1
nnet3-chain-subset-egs          0     -     1
nnet3-chain-train               0     -     1
nnet3-combine                   0     -   255
nnet3-compute                   0     0     1
nnet3-compute-batch             0     0     1
nnet3-compute-from-egs          0     -     0
nnet3-compute-looped            0     0     1
nnet3-compute-prob              0     -     1
nnet3-copy                      0     -     -
nnet3-copy-egs                  0     0     1
nnet3-egs-augment-image         0     -     1
nnet3-get-egs                   0     0     1
nnet3-get-egs-dense-targets     0     0     1
nnet3-get-egs-simple            0     0     1
nnet3-info                      0     -     -
nnet3-init                      0     -     -
nnet3-merge-egs                 0     0     1
nnet3-report                    0     -     -
nnet3-show-progress             0     -   255
nnet3-shuffle-egs               0     -     1
nnet3-subset-egs                0     -     1
nnet3-to-c                      0     -     -
nnet3-to-onnx                   0     -     -
nnet3-train                     0     -     1
nnet3-train-recipe              0     -   255
nnet3-transcribe                0   255   255
nnet3-xvector-compute           0     0     1
nnet3-xvector-compute-batched   0     0     1
nnet3-xvector-get-egs           0     0     1
select-voiced-frames            0     0     1
"""
"""FINE: all input is good. SOME: some of it fails. NONE: all of it fails, or there is none."""

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

HEADER, *ROWS = [line.split() for line in STATUSES.split("\n") if line]
CASES = [
    (tool, situation, int(status))
    for tool, *statuses in ROWS
    for situation, status in zip(HEADER[1:], statuses, strict=True)
    if status != "-"
]


def status_of(tool: str, *arguments: str) -> tuple[int, str]:
    """The exit status of a tool, and what it writes to standard error."""
    done = run_tool(tool, *arguments)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the input of the commands."""
    path = tmp_path_factory.mktemp("tools")
    write_inputs(path)
    return path


def test_every_tool_is_here() -> None:
    """The table and the commands have each tool once."""
    tools = {tool for tool in entry_points.MODULES if not tool.startswith("cuda-")}

    assert [tool for tool, *_ in ROWS] == sorted(tools) == list(LINES)


@pytest.mark.parametrize(("tool", "situation", "status"), CASES)
def test_status(
    tool: str, situation: str, status: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool ends with Kaldi's status if all, some or none of its input is good."""
    monkeypatch.chdir(folder)
    line = command_line(tool, situation)
    Path("out").unlink(missing_ok=True)

    found, said = status_of(tool, *shlex.split(line)[1:])

    assert found == status, said
    if status == 1 and tool.endswith("-egs"):
        assert not Path("out").exists()  # an archive of no example is of no use


@pytest.mark.parametrize("tool", LINES)
def test_status_after_an_error(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its input, and with an option that does not exist, a tool ends with status 255.

    With too few or too many arguments it shows its usage, and ends with status 1.
    """
    monkeypatch.chdir(tmp_path)
    _, *arguments = shlex.split(command_line(tool))
    nowhere = [
        argument if argument.startswith("-") else f"ark:{name}" if ":" in argument else name
        for number, argument in enumerate(arguments)
        for name in [f"nowhere/{number}"]
    ]

    assert status_of(tool, *nowhere)[0] == 255
    assert status_of(tool, "--no-such-option", *arguments)[0] == 255
    options = [argument for argument in arguments if argument.startswith("--")]
    wrong = [[], options] if tool in ANY_NUMBER else [[], options, [*options, *["a"] * 6]]
    for given in wrong:
        found, said = status_of(tool, *given)
        assert found == 1, said
        assert "Usage: " in said
