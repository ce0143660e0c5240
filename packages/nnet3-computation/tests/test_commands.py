"""The command classes, and the table schema that their declarations define."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_computation import CommandError, commands
from nnet3_computation.commands import COMMAND_TYPES, SCHEMA, command_table
from nnet3_computation.commands.declaration import (
    ALPHA_COLUMN,
    TABLE_WIDTH,
    Access,
    Command,
    CommandSchema,
    OperandKind,
)


@st.composite
def any_command(draw: st.DrawFn) -> Command:
    """A command of any class, with valid operands."""
    command_type = draw(st.sampled_from(COMMAND_TYPES))
    values = {item.name: draw(st.integers(1, 2**31 - 1)) for item in command_type.OPERANDS}
    if command_type.HAS_ALPHA:
        values["alpha"] = draw(st.floats(width=32, allow_nan=False, allow_infinity=False))
    return command_type(**values)


class TestCommand:
    """One command as an object."""

    def test_operands_are_named_fields(self) -> None:
        """A command is made with named operands and compares by value."""
        first = commands.MatrixAdd(output=3, input=4, alpha=0.66)

        assert first == commands.MatrixAdd(output=3, input=4, alpha=np.float32(0.66))
        assert first != commands.MatrixCopy(output=3, input=4, alpha=0.66)
        assert (first.output, first.input) == (3, 4)

    def test_optional_operands_default_to_none(self) -> None:
        """An optional operand is 0 by default."""
        command = commands.Propagate(component=2, input=1, output=2)

        assert (command.precomputed_indexes, command.memo) == (0, 0)


class TestTable:
    """Commands as rows of a table."""

    @given(st.lists(any_command(), max_size=5))
    def test_round_trip(self, given_commands: list[Command]) -> None:
        """A table made from commands gives the same commands back."""
        table = command_table(given_commands)

        assert table.shape == (len(given_commands), TABLE_WIDTH)
        assert given_commands == [SCHEMA.command(row) for row in table.tolist()]

    def test_alpha_is_stored_as_float32_bits(self) -> None:
        """Column 1 holds the bits of alpha; it is 0 for commands without alpha."""
        table = command_table([commands.SetConst(output=1, alpha=-1.5), commands.NoOperation()])

        assert table[:, ALPHA_COLUMN].view(np.float32).tolist() == [-1.5, 0.0]


class TestSchema:
    """Declarations as arrays."""

    def test_declarations_are_shown_per_column(self) -> None:
        """Kinds and accesses are in the columns of their operands."""
        opcode = commands.AddRows.OPCODE

        assert list(zip(SCHEMA.kind[opcode, 2:6], SCHEMA.access[opcode, 2:6], strict=True)) == [
            (OperandKind.SUBMATRIX, Access.READ_WRITE),
            (OperandKind.SUBMATRIX, Access.READ),
            (OperandKind.INDEXES, Access.NONE),
            (OperandKind.NONE, Access.NONE),
        ]

    def test_opcodes_are_unique(self) -> None:
        """Two classes with one opcode are refused."""

        class Other(Command):
            OPCODE = commands.NoOperation.OPCODE
            OPERANDS = ()

        with pytest.raises(CommandError, match="belongs to both NoOperation and Other"):
            CommandSchema.of([*COMMAND_TYPES, Other])
