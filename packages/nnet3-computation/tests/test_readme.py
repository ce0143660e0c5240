"""The README's examples run and print the output shown; its table of commands is current."""

import doctest
from pathlib import Path

from nnet3_computation import COMMAND_TYPES, Access, Command, Operand

PACKAGE = Path(__file__).resolve().parents[1]

ACCESS_TEXT = {Access.READ: " (r)", Access.WRITE: " (w)", Access.READ_WRITE: " (rw)"}


def test_examples() -> None:
    """All examples run in order, in one session."""
    results = doctest.testfile(str(PACKAGE / "README.md"), module_relative=False)

    assert results.attempted > 10
    assert results.failed == 0


def operand_text(operand: Operand) -> str:
    """An operand in the table: its name and its access."""
    text = f"`{operand.name}`{ACCESS_TEXT.get(operand.access, '')}"
    if operand.adds_if:
        text = text.replace("(w)", f"(w; rw if {operand.adds_if.name})")
    return text


def command_row(command_type: type[Command]) -> str:
    """The row of a command in the table."""
    cells = [operand_text(item) for item in command_type.OPERANDS]
    cells += ["`alpha`"] * command_type.HAS_ALPHA
    meaning = (command_type.__doc__ or "").splitlines()[0]
    return f"| {command_type.OPCODE} | {command_type.__name__} | {', '.join(cells)} | {meaning} |"


def command_table() -> str:
    """The table of commands by their declarations."""
    head = ["| opcode | command | operands, in the order of their columns | meaning |"]
    return "\n".join([*head, "|---|---|---|---|", *map(command_row, COMMAND_TYPES)]) + "\n"


def test_command_table() -> None:
    """The README has the table of commands that the code declares."""
    assert command_table() in (PACKAGE / "README.md").read_text()
