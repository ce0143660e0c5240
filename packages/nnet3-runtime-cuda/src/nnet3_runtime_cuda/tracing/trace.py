"""The times and values of the runs of some computations, as a value, as tables and as a file.

Trace viewers (Perfetto, chrome://tracing) open the file. Its format is Chrome's "Trace Event
Format": complete events ("ph": "X") with times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

MOST_LINES = 20

_WIDEST_TEXT = 72
_NO_NODE = "(none)"
_NUMBERS = ("runs", "ms", "share", "MB", "GB/s", "largest")
_PROCESS = 1


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


# ---- as tables ----


def format_trace(trace: Trace, *, most_lines: int = MOST_LINES) -> str:
    """A trace as tables.

    The columns are the number of runs, the milliseconds of all runs, their share of the total, the
    megabytes that the commands read and write by their operands, gigabytes a second, and the
    largest magnitude of the written values.

    Args:
        trace: The trace.
        most_lines: The most lines of each table.
    """
    total = trace.seconds
    tables: dict[str, dict[str, list[CommandProfile]]] = {}
    for number, command in trace.commands:
        for head, key in (
            ("node", command.node or _NO_NODE),
            ("kind", command.kind),
            ("command [program]", f"c{command.position}: {_shortened(command.text)} [{number}]"),
        ):
            tables.setdefault(head, {}).setdefault(key, []).append(command)
    lines = []
    for head in ("node", "kind", "command [program]"):
        ordered = sorted(tables.get(head, {}).items(), key=lambda item: -_seconds(item[1]))
        lines += _table(head, ordered[:most_lines], total)
        if len(ordered) > most_lines:
            rest = sum(_seconds(each) for _, each in ordered[most_lines:])
            lines.append(f"{len(ordered) - most_lines} more: {1e3 * rest:.2f} ms")
        lines.append("")
    for number, program in enumerate(trace.programs):
        lines.append(f"[{number}] {program.name}: {1e3 * program.seconds:.2f} ms")
    if trace.num_left_out:
        lines.append(f"{trace.num_left_out:,} single runs were counted and not kept")
    lines.append(f"all values are finite: {'yes' if trace.fault is None else 'no'}")
    if trace.fault is not None:
        lines.append(f"first: {trace.fault}")
    return "\n".join(lines) + "\n"


def _seconds(commands: Sequence[CommandProfile]) -> float:
    return sum(command.seconds for command in commands)


def _shortened(text: str) -> str:
    return text if len(text) <= _WIDEST_TEXT else f"{text[: _WIDEST_TEXT - 3]}..."


def _table(
    head: str, groups: Iterable[tuple[str, Sequence[CommandProfile]]], total: float
) -> list[str]:
    rows: list[tuple[str, ...]] = [(head, *_NUMBERS)]
    rows += [(name, *_cells(commands, total)) for name, commands in groups]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_line(row, widths) for row in rows]


def _cells(commands: Sequence[CommandProfile], total: float) -> tuple[str, ...]:
    seconds = _seconds(commands)
    nbytes = sum(command.nbytes * command.runs for command in commands)
    largest = [command.largest for command in commands if command.largest is not None]
    return (
        f"{sum(command.runs for command in commands):,}",
        f"{1e3 * seconds:,.2f}",
        f"{seconds / total if total else 0.0:.1%}",
        f"{nbytes / 1e6:,.1f}",
        f"{nbytes / seconds / 1e9 if seconds else 0.0:.1f}",
        f"{max(largest):.3g}" if largest else "",
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, *numbers = row
    cells = [f"{name:<{widths[0]}}"]
    cells += [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True)]
    return "  ".join(cells).rstrip()


# ---- as a file ----


def trace_events(trace: Trace) -> str:
    """The runs of commands as JSON for trace viewers, one event for each run.

    An event has the name of the node; its category is the kind of the command. Its arguments are
    the command, its bytes, and the largest value that the command ever wrote.
    """
    threads = sorted({run.thread for run in trace.runs})
    events = [_named("process_name", 0, "nnet3")]
    events += [_named("thread_name", number, f"thread {number}") for number in threads]
    for run in trace.runs:
        program = trace.programs[run.program]
        command = program.commands[run.command]
        events.append(
            {
                "name": command.node or command.kind,
                "cat": command.kind,
                "ph": "X",
                "ts": run.start * 1e6,
                "dur": run.seconds * 1e6,
                "pid": _PROCESS,
                "tid": run.thread,
                "args": {
                    "command": f"c{command.position}: {command.text}",
                    "program": program.name,
                    "bytes": command.nbytes,
                    "largest": command.largest,
                },
            }
        )
    if trace.fault is not None:
        events.append(_fault_event(trace))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, allow_nan=False)


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    """An event that gives a process or thread a name."""
    return {"name": what, "ph": "M", "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _fault_event(trace: Trace) -> dict[str, Any]:
    """Marks where the first value that is not finite was written; at 0 if its run was not kept."""
    fault, seen, at = trace.fault, 0, 0.0
    assert fault is not None
    for run in trace.runs:
        command = trace.programs[run.program].commands[run.command]
        if (run.program, command.position) == (fault.program, fault.position):
            seen += 1
            if seen == fault.run:
                at = run.start + run.seconds
    return {"name": str(fault), "ph": "i", "s": "g", "ts": at * 1e6, "pid": _PROCESS, "tid": 0}
