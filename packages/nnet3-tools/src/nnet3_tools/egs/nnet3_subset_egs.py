"""nnet3-subset-egs: chooses some of many examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3_tools.egs.order import subset_command
from nnet3_tools.kaldi_command import run_tool

if TYPE_CHECKING:
    from nnet3_tools.egs.forms import ExampleForm

NAME = "nnet3-subset-egs"


def _form() -> ExampleForm:
    from nnet3_tools.egs.forms import NNET3

    return NNET3


command = subset_command(NAME, _form)


def main() -> None:
    """The entry point of the tool."""
    run_tool(command, NAME)
