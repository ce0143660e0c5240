"""nnet3-shuffle-egs: examples in random order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3_tools.egs.order import shuffle_command
from nnet3_tools.kaldi_command import run_tool

if TYPE_CHECKING:
    from nnet3_tools.egs.forms import ExampleForm

NAME = "nnet3-shuffle-egs"


def _form() -> ExampleForm:
    from nnet3_tools.egs.forms import NNET3

    return NNET3


command = shuffle_command(NAME, _form)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
