"""The times and values of the runs of some computations, as a value."""

from __future__ import annotations

from collections.abc import Iterator

import attrs


@attrs.frozen(kw_only=True)
class CommandProfile:
    """The runs of one command, summed up.

    Attributes:
        position: Position of the command in its computation.
        kind: Name of its class, such as "Propagate".
        text: The command as `format_computation` prints it, without its number.
        node: The node that the command computes, or whose input it makes; "" if not known. If
            several nodes share a component and the matrices do not tell which one it is, all of
            them: "a or b".
        nbytes: Bytes of the rows that the command reads and writes and of its component's
            parameters, without the savings of lowering, such as reading splices in place.
        runs: Number of runs.
        seconds: Seconds of all runs together, by the clock.
        largest: The largest magnitude of a finite value that it wrote; None if its values were not
            read.
    """

    position: int
    kind: str
    text: str
    node: str
    nbytes: int
    runs: int
    seconds: float
    largest: float | None


@attrs.frozen(kw_only=True)
class ProgramProfile:
    """The runs of one computation, summed up.

    Attributes:
        name: Its inputs and outputs, such as "input 74 -> output 50".
        commands: The commands that ran, in order. Commands without calls are left out: those that
            only allocate memory, and those that lowering removed.
    """

    name: str
    commands: tuple[CommandProfile, ...]

    @property
    def seconds(self) -> float:
        """Seconds of all commands together."""
        return sum(command.seconds for command in self.commands)


@attrs.frozen(kw_only=True)
class CommandRun:
    """One run of a command.

    Attributes:
        program: Number of the computation in the trace.
        command: Number of the command among the profile's commands.
        start: Seconds since the tracer was made.
        seconds: Duration by the clock.
        thread: Number of the thread, in the order in which threads first appeared.
    """

    program: int
    command: int
    start: float
    seconds: float
    thread: int


@attrs.frozen(kw_only=True)
class Fault:
    """The first value that is infinite or not a number.

    Attributes:
        program: Number of the computation in the trace.
        position: Position of the command that wrote it.
        run: Number of the command's run, from 1.
        node: As in `CommandProfile`.
        text: The command.
        row: The row of the matrix.
        column: The column, counted from the first that the command wrote.
        index: The (n, t, x) of the row; None if not known.
        value: The value as Python writes it: "nan", "inf" or "-inf".
    """

    program: int
    position: int
    run: int
    node: str
    text: str
    row: int
    column: int
    index: tuple[int, int, int] | None
    value: str

    def __str__(self) -> str:
        """The fault in words."""
        what = "no number (nan)" if self.value == "nan" else f"overflow ({self.value})"
        where = f"node '{self.node}'" if self.node else "a matrix of no known node"
        row = f"row {self.row}"
        if self.index is not None:
            n, t, x = self.index
            row = f"n={n}, t={t}" + (f", x={x}" if x else "")
        return (
            f"{what} in {where} at {row}, column {self.column}, in run {self.run} of "
            f"c{self.position}: {self.text}"
        )


@attrs.frozen(kw_only=True)
class Trace:
    """The times, bytes and largest values of the runs of some computations.

    Attributes:
        programs: The computations, in the order in which they were bound.
        runs: The single runs of commands, in the order of their ends: the first ones, as many as
            the tracer keeps.
        num_left_out: Number of further runs.
        fault: The first value that is not finite; None if all values that the tracer saw are
            finite.
    """

    programs: tuple[ProgramProfile, ...]
    runs: tuple[CommandRun, ...]
    num_left_out: int
    fault: Fault | None

    @property
    def seconds(self) -> float:
        """Seconds of all commands together, summed over threads."""
        return sum(program.seconds for program in self.programs)

    @property
    def commands(self) -> Iterator[tuple[int, CommandProfile]]:
        """The commands of all computations, each with the number of its computation."""
        for number, program in enumerate(self.programs):
            for command in program.commands:
                yield number, command
