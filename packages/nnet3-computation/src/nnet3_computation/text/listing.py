"""Commands as text, for messages and for people who print a computation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nnet3_computation.computation import NnetComputation
from nnet3_computation.errors import ComputationError
from nnet3_computation.text.operands import submatrix_text

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

NEIGHBOURS = 3
"""How many commands a message shows before and after the command in question."""


def describe_submatrix(computation: NnetComputation, submatrix: int) -> str:
    """Returns a submatrix as text, such as "m3(0:9, :)"; "-" for the empty one."""
    if submatrix == 0:
        return "-"
    row = computation.submatrices[submatrix].tolist()
    return submatrix_text(row, computation.matrices[row[0]].tolist())


def command_lines(computation: NnetComputation, nnet: Nnet, positions: Iterable[int]) -> list[str]:
    """Returns the commands at some positions, a line each, as `format_computation` prints them."""
    from nnet3_computation.text.printer import command_line, operand_text

    try:
        names = operand_text(computation, nnet)
    except ComputationError:  # it names a node or component that the network lacks
        names = operand_text(computation, None)
    return [command_line(at, computation.commands[at], names) for at in positions]


def list_commands(computation: NnetComputation, nnet: Nnet, command: int) -> str:
    """Returns a command, marked, with the commands before and after it, a line each."""
    last = min(command + NEIGHBOURS, len(computation.command_table) - 1)
    shown = range(max(0, command - NEIGHBOURS), last + 1)
    return "\n".join(
        f"  {'>' if at == command else ' '} {line}"
        for at, line in zip(shown, command_lines(computation, nnet, shown), strict=True)
    )


def program_lines(computation: NnetComputation) -> list[str]:
    """Returns the sizes of the matrices and the commands, a line each, without a network's names.

    `format_computation` gives names of nodes and components, and everything else, too.
    """
    from nnet3_computation.text.printer import command_line, operand_text

    names = operand_text(computation, None)
    sizes = enumerate(computation.matrices.tolist())
    return [
        *(f"m{number} = {rows} x {cols}" for number, (rows, cols) in sizes if number),
        *(command_line(at, command, names) for at, command in enumerate(computation.commands)),
    ]
