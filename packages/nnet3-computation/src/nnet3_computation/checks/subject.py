"""The subject of checks: a computation, and methods that report faults."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn, Self

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_computation.analysis.analysis import Analysis
from nnet3_computation.arrays import Bools, Ids, every
from nnet3_computation.commands import SCHEMA, Command, GotoLabel, NoOperationMarker
from nnet3_computation.commands.declaration import Table
from nnet3_computation.commands.tables import operand
from nnet3_computation.computation import NnetComputation

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet
    from nnet3_descriptors.components import Component

Message = str | Callable[[int], str]
"""A message, or a function that makes it from the position of the first fault in the arrays."""

ROWS, COLS = 2, 4
"""Columns of the table of submatrices that hold their sizes."""


class FaultError(Exception):
    """A fault that a check found; `check_computation` turns it into a CheckError.

    Attributes:
        message: The fault, without the place.
        command: The position of the command at fault, or None if there is none.
    """

    def __init__(self, message: str, command: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.command = command


@attrs.frozen(kw_only=True, eq=False)
class Subject:
    """A computation under check.

    Attributes:
        nnet: The network that it is for.
        computation: The computation.
        analysis: The accesses of its commands.
    """

    nnet: Nnet
    computation: NnetComputation
    analysis: Analysis

    @classmethod
    def of(cls, nnet: Nnet, computation: NnetComputation) -> Self:
        """Returns a computation as a subject."""
        return cls(nnet=nnet, computation=computation, analysis=Analysis.of(nnet, computation))

    # -- commands and operands -----------------------------------------------------------------

    @property
    def table(self) -> Table:
        """(C, TABLE_WIDTH) int32, the commands."""
        return self.computation.command_table

    @property
    def opcodes(self) -> Ids:
        """(C,) int64, the kinds of the commands."""
        return self.analysis.opcodes

    @cached_property
    def is_loop(self) -> bool:
        """Whether the computation goes back to a label."""
        return self.loop_end < len(self.table)

    @cached_property
    def loop_end(self) -> int:
        """The position of the first GotoLabel; the number of commands if there is none."""
        found = self.positions(GotoLabel)
        return int(found[0]) if len(found) else len(self.table)

    @cached_property
    def segment_ends(self) -> Ids:
        """The positions of the markers that end segments, ascending."""
        return self.positions(NoOperationMarker)

    def segment(self, at: Ids) -> Ids:
        """Returns in which segment commands are, from 0."""
        return np.searchsorted(self.segment_ends, at)

    def positions(self, *types: type[Command]) -> Ids:
        """Returns the positions of all commands of these types, ascending."""
        return self.analysis.positions(*(each.OPCODE for each in types))

    def operand(self, at: Ids, command_type: type[Command], name: str) -> Ids:
        """Returns an operand of the commands at these positions; see `operands.operand`."""
        return operand(self.table, at, command_type, name)

    def rows(self, submatrices: Ids) -> Table:
        """Returns the numbers of rows of submatrices; 0 for the empty one."""
        rows: Table = self.computation.submatrices[submatrices, ROWS]
        return rows

    def cols(self, submatrices: Ids) -> Table:
        """Returns the numbers of columns of submatrices; 0 for the empty one."""
        cols: Table = self.computation.submatrices[submatrices, COLS]
        return cols

    def component(self, index: int) -> tuple[str, Component]:
        """Returns name and component."""
        return self.nnet.component_names[index], self.nnet.components[index]

    def describe(self, submatrix: int) -> str:
        """Returns a submatrix in the form "m3(0:9, 20:39)"."""
        from nnet3_computation.text import describe_submatrix

        return describe_submatrix(self.computation, submatrix)

    def name(self, command: int) -> str:
        """Returns the type of a command."""
        command_type = SCHEMA.types[int(self.opcodes[command])]
        return "?" if command_type is None else command_type.__name__

    # -- verdicts ------------------------------------------------------------------------------

    def fail(self, message: str, command: int | None = None) -> NoReturn:
        """Raises a FaultError."""
        raise FaultError(message, command)

    def require(self, valid: Bools, at: Ids, message: Message) -> None:
        """Fails for the first command of `at` for which `valid`, an array as long, is False."""
        if every(valid):
            return
        first = int(np.flatnonzero(~valid)[0])
        command = int(at[first])
        text = message if isinstance(message, str) else message(first)
        self.fail(f"{self.name(command)}: {text}", command)

    def require_size(
        self,
        at: Ids,
        name: str,
        submatrices: Ids,
        axis: int,
        expected: npt.NDArray[np.integer],
        reason: Message,
    ) -> None:
        """Fails where a submatrix does not have the expected number of rows or columns.

        Args:
            at: Positions of commands.
            name: The name of the operand.
            submatrices: Its values; empty ones are skipped.
            axis: ROWS or COLS.
            expected: The expected sizes.
            reason: Says where the expectation comes from.
        """
        found = self.computation.submatrices[submatrices, axis]
        quantity = "rows" if axis == ROWS else "columns"

        def message(first: int) -> str:
            why = reason if isinstance(reason, str) else reason(first)
            submatrix = int(submatrices[first])
            return (
                f"{name} = {self.describe(submatrix)} has {found[first]} {quantity}, "
                f"expected {expected[first]} ({why})"
            )

        self.require((found == expected) | (submatrices == 0), at, message)
