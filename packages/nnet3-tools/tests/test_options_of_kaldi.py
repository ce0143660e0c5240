"""The options that Kaldi's tools have, and what the tools of these names do with them.

Each line of `options_of_kaldi.txt` has a tool and its options.
"""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from nnet3_tools.entry_points import MODULES, command_of

OPTIONS = {
    tool: names.split()
    for tool, _, names in (
        line.partition(":")
        for line in Path(__file__).with_name("options_of_kaldi.txt").read_text().splitlines()
    )
}

TOOLS = [tool for tool in MODULES if not tool.startswith("cuda-")]


@pytest.mark.parametrize("tool", OPTIONS)
def test_every_option_is_known(tool: str) -> None:
    """A tool declares each option of Kaldi's, or takes it without effect."""
    command = command_of(tool)
    declared = {name for parameter in command.params for name in parameter.opts}

    unknown = {f"--{name}" for name in OPTIONS[tool]} - declared - command.ignored.keys()

    assert unknown == set()


@pytest.mark.parametrize("tool", OPTIONS)
def test_help_tells_which_options_change_nothing(tool: str) -> None:
    """The help lists each option that is taken without effect, in a list of its own."""
    command = command_of(tool)
    text = command.get_help(click.Context(command, info_name=tool))
    _, listed = text.split("Kaldi's options that change nothing here:\n")

    rows = [line.split(maxsplit=1) for line in listed.partition("\n\n")[0].splitlines()]
    assert dict(rows) == command.ignored != {}
    assert not any(getattr(parameter, "hidden", False) for parameter in command.params)


@pytest.mark.parametrize("tool", OPTIONS)
@pytest.mark.parametrize("option", ["--optimization.optimise=true", "--no-such-option"])
def test_unknown_options_are_refused(tool: str, option: str) -> None:
    """An option that Kaldi's tool does not have is refused by name, also one much like another."""
    name = option.partition("=")[0]

    with pytest.raises(click.NoSuchOption, match=name):
        command_of(tool).main([option, "a", "b", "c"], standalone_mode=False)


@pytest.mark.parametrize("value", ["touch {} |", "ark:touch {} |", "scp,p:touch {}|", "| touch {}",
                                   "ark,t:| touch {}", "ark:touch {} |  # a comment"])  # fmt: skip
@pytest.mark.parametrize("tool", TOOLS)
def test_no_file_starts_a_program(tool: str, value: str, tmp_path: Path) -> None:
    """A command in a file of options is refused, for each option of each tool."""
    config, touched = tmp_path / "options.conf", tmp_path / "touched"
    command = command_of(tool)
    names = {name for parameter in command.params for name in parameter.opts if "--" in name}
    for name in sorted({*names, "--whatever"}):
        config.write_text(f"{name}={value.format(touched)}\n")
        with pytest.raises(click.UsageError) as caught:
            command.main([f"--config={config}", "a", "b", "c"], standalone_mode=False)
        assert f"{config}, line 1: the value of {name} is a command" in str(caught.value)
    assert not touched.exists()


@pytest.mark.parametrize(
    ("tool", "size"), [("nnet3-merge-egs", "256"), ("nnet3-chain-merge-egs", "64")]
)
def test_usual_sizes_of_minibatches(tool: str, size: str) -> None:
    """Minibatches have the size that Kaldi's tool of this name gives them."""
    (option,) = [each for each in command_of(tool).params if "--minibatch-size" in each.opts]

    assert option.default == size
