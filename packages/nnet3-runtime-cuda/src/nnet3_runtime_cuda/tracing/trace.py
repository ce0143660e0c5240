"""What was seen of the runs of some computations, as a value."""

from __future__ import annotations

from collections.abc import Iterator

import attrs


@attrs.frozen(kw_only=True)
class CommandProfile:
    """What the runs of one command took.

    Attributes:
        position: Of the command in its computation.
        kind: Name of its class, such as "Propagate".
        text: The command as `format_computation` prints it, without its number.
        node: The node that it computes, or makes the input of, by its component or by what is known
            of the matrix that it writes; "" if nothing is. Where nodes share a component and the
            matrices do not tell which one it is, all of them: "a or b".
        nbytes: Of the rows that it reads and writes and of the parameters of its component, as the
            command says. What lowering changed (a splice that is read in place) is not counted.
        runs: How often it ran.
        seconds: All runs together, by the clock.
        largest: The largest magnitude of a finite value that it wrote; None if what it wrote was
            not looked at.
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
    """What the runs of one computation took.

    Attributes:
        name: Its inputs and outputs, such as "input 74 -> output 50".
        commands: Those that ran, in their order. Commands that only give memory, or that lowering
            left out, have nothing to run.
    """

    name: str
    commands: tuple[CommandProfile, ...]

    @property
    def seconds(self) -> float:
        """All commands together."""
        return sum(command.seconds for command in self.commands)


@attrs.frozen(kw_only=True)
class CommandRun:
    """One run of a command.

    Attributes:
        program: Number of the computation in the trace.
        command: Number of the command among those of the computation that ran.
        start: Seconds since the tracer was made.
        seconds: How long it took, by the clock.
        thread: Number of the thread that ran it, in the order in which threads came.
    """

    program: int
    command: int
    start: float
    seconds: float
    thread: int


@attrs.frozen(kw_only=True)
class Fault:
    """The first value that is infinite, or no number.

    Attributes:
        program: Number of the computation in the trace.
        position: Of the command that wrote it.
        run: Which run of the command it was, from 1.
        node: See `CommandProfile`, as for `text`.
        text: The command.
        row: In the matrix.
        column: In what the command wrote.
        index: What the row stands for, (n, t, x); None if that is not known.
        value: The value, as Python writes it: "nan", "inf" or "-inf".
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
        runs: The single runs of commands, in the order of their ends; the first ones only, if there
            were more than the tracer keeps.
        num_left_out: How many more there were.
        fault: The first value that is not finite; None if all values that the tracer saw are
            finite.
    """

    programs: tuple[ProgramProfile, ...]
    runs: tuple[CommandRun, ...]
    num_left_out: int
    fault: Fault | None

    @property
    def seconds(self) -> float:
        """All commands together; of several threads the sum."""
        return sum(program.seconds for program in self.programs)

    @property
    def commands(self) -> Iterator[tuple[int, CommandProfile]]:
        """The commands of all computations, with the number of the computation."""
        for number, program in enumerate(self.programs):
            for command in program.commands:
                yield number, command
