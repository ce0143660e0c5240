"""Commands as text, for messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.errors import ComputationError
from nnet3_compiler.text.operands import submatrix_text
from nnet3_compiler.text.printer import format_computation

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

NEIGHBOURS = 3
"""How many commands a message shows before and after the one that it is about."""


def describe_submatrix(computation: NnetComputation, submatrix: int) -> str:
    """Returns a submatrix as text, such as "m3(0:9, :)"; "-" for the empty one."""
    if submatrix == 0:
        return "-"
    row = computation.submatrices[submatrix].tolist()
    return submatrix_text(row, computation.matrices[row[0]].tolist())


def command_lines(computation: NnetComputation, nnet: Nnet) -> list[str]:
    """Returns all commands, a line each."""
    try:
        text = format_computation(computation, nnet).splitlines()
    except ComputationError:  # it names what the network lacks, which may be what is wrong with it
        text = format_computation(computation).splitlines()
    return text[len(text) - len(computation.command_table) :]


def list_commands(computation: NnetComputation, nnet: Nnet, command: int) -> str:
    """Returns a command, marked, with the commands before and after it, a line each."""
    commands = command_lines(computation, nnet)
    begin = max(0, command - NEIGHBOURS)
    return "\n".join(
        f"  {'>' if at == command else ' '} {line}"
        for at, line in enumerate(commands[begin : command + NEIGHBOURS + 1], begin)
    )
