"""Tracer: times the commands of the computers that have it, and reads the values they write."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from nnet3_computation import NnetComputation, OperandKind
from nnet3_computation.commands import Access, Command
from nnet3_computation.computation import NODE, N, T, X
from nnet3_computation.text import command_lines
from nnet3_descriptors import ComponentInputNode, ComponentNode, Nnet

from nnet3_runtime_cuda.arrays import FloatArray
from nnet3_runtime_cuda.operations import Call
from nnet3_runtime_cuda.tracing.trace import (
    CommandProfile,
    CommandRun,
    Fault,
    ProgramProfile,
    Trace,
)

MOST_RUNS = 200_000
"""The most single runs of commands in a trace: 1,200 utterances with 170 commands each."""

_MATRICES = (OperandKind.SUBMATRIX, OperandKind.WHOLE_MATRIX)
_FLOAT_BYTES = 4


class _Program:
    """A traced computation, its number, its sums by the position of commands, and their subjects.

    Attributes:
        runs: (commands,) how often each has run.
        seconds: (commands,) of all runs.
        largest: (commands,) the largest magnitude written; NaN if its values were not read.
    """

    def __init__(self, nnet: Nnet, computation: NnetComputation, number: int) -> None:
        """Reads which matrices belong to which nodes."""
        self._nnet, self._computation, self.number = nnet, computation, number
        names: dict[str, list[str]] = {}
        for node in nnet.nodes:
            if isinstance(node, ComponentNode):
                names.setdefault(node.component, []).append(node.name)
        self._nodes_by_component = [names.get(name, []) for name in nnet.component_names]
        size = len(computation.command_table)
        self.runs, self.seconds = np.zeros(size, np.int64), np.zeros(size)
        self.largest = np.full(size, np.nan)

    def profile(self) -> ProgramProfile:
        """The sums as a value."""
        positions = np.flatnonzero(self.runs).tolist()
        subjects = self.subjects(positions)
        commands = []
        for position, (kind, text, node, nbytes) in zip(positions, subjects, strict=True):
            largest = float(self.largest[position])
            commands.append(
                CommandProfile(
                    position=position,
                    kind=kind,
                    text=text,
                    node=node,
                    nbytes=nbytes,
                    runs=int(self.runs[position]),
                    seconds=float(self.seconds[position]),
                    largest=None if math.isnan(largest) else largest,
                )
            )
        return ProgramProfile(name=self._name(), commands=tuple(commands))

    def fault(self, position: int, written: Written) -> Fault:
        """The first value that is not finite among what the last run of a command wrote."""
        [(_, text, node, _)] = self.subjects([position])
        row, column, value = written.first_fault()
        row += written.row
        cindex = self._cindex(written.matrix, row)
        return Fault(
            program=self.number,
            position=position,
            run=int(self.runs[position]),
            node=node,
            text=text,
            row=row,
            column=column,
            index=None if cindex is None else (cindex[N], cindex[T], cindex[X]),
            value=str(value),
        )

    # ---- what commands are about ----

    def subjects(self, positions: Sequence[int]) -> list[tuple[str, str, str, int]]:
        """Kind, text, node and bytes of the commands at these positions; see `CommandProfile`."""
        commands = self._computation.commands
        lines = command_lines(self._computation, self._nnet, positions)
        return [
            (
                type(command).__name__,
                line.partition(": ")[2],
                self._node(command),
                self._nbytes(command),
            )
            for command, line in zip((commands[at] for at in positions), lines, strict=True)
        ]

    def _name(self) -> str:
        """Inputs and outputs of the computation, with their rows."""
        given: list[str] = []
        wanted: list[str] = []
        for command in self._computation.commands:
            kind = type(command).__name__
            if kind in ("AcceptInput", "ProvideOutput"):
                node, submatrix = (getattr(command, name) for name in ("node", "matrix"))
                rows = int(self._computation.submatrices[submatrix, 2])
                text = f"{self._nnet.nodes[node].name} {rows}"
                (given if kind == "AcceptInput" else wanted).append(text)
        return f"{', '.join(given) or 'nothing'} -> {', '.join(wanted) or 'nothing'}"

    # ---- nodes ----

    def _node(self, command: Command) -> str:
        written = [self._node_of_row(*place) for place in self._places(command, Access.WRITE)]
        for operand in command.OPERANDS:
            number: int = getattr(command, operand.name)
            if operand.kind == OperandKind.NODE:
                return self._nnet.nodes[number].name
            if operand.kind == OperandKind.COMPONENT:
                names = self._nodes_by_component[number]
                read = (self._node_of_row(*place) for place in self._places(command, Access.READ))
                # If several nodes share the component, the matrix tells which node it is.
                known = (name for name in (*written, *read) if name in names)
                return names[0] if len(names) == 1 else next(known, " or ".join(names))
        return next(iter(written), "")

    def _node_of_row(self, submatrix: int, row: int) -> str:
        matrix, row_offset = self._computation.submatrices[submatrix, :2].tolist()
        cindex = self._cindex(matrix, row_offset + row)
        if cindex is None:
            return ""
        nodes, number = self._nnet.nodes, cindex[NODE]
        # The input of a component counts as the component's node, which follows it.
        return nodes[number + isinstance(nodes[number], ComponentInputNode)].name

    def _cindex(self, matrix: int, row: int) -> list[int] | None:
        infos = self._computation.matrix_debug_info
        if not infos or row >= infos[matrix].num_rows:
            return None
        cindex: list[int] = infos[matrix].cindexes_of(row, row + 1)[0].tolist()
        return cindex

    def _places(self, command: Command, access: Access) -> Iterator[tuple[int, int]]:
        """Submatrix and row where each operand that a command reads or writes begins."""
        for operand in command.OPERANDS:
            number = getattr(command, operand.name)
            if not operand.access & access:
                continue
            if operand.kind in _MATRICES and number:
                yield number, 0
            elif operand.kind == OperandKind.INDEXES_MULTI:
                pairs = self._computation.indexes_multi[number]
                present = pairs[pairs[:, 0] >= 0]
                if len(present):
                    submatrix, row = present[0].tolist()
                    yield submatrix, row

    # ---- bytes ----

    def _nbytes(self, command: Command) -> int:
        elements = 0
        for operand in command.OPERANDS:
            number = getattr(command, operand.name)
            times = int(operand.access).bit_count()  # once to read, once to write
            if operand.kind in _MATRICES:
                elements += times * self._size(number)
            elif operand.kind == OperandKind.INDEXES_MULTI:
                pairs = self._computation.indexes_multi[number]
                submatrices = pairs[pairs[:, 0] >= 0, 0]
                elements += times * int(self._computation.submatrices[submatrices, 4].sum())
            elif operand.kind == OperandKind.COMPONENT:
                elements += self._nnet.components[number].num_parameters
        return elements * _FLOAT_BYTES

    def _size(self, submatrix: int) -> int:
        _, _, rows, _, columns = self._computation.submatrices[submatrix].astype(np.int64).tolist()
        return rows * columns if submatrix else 0


class Tracer:
    """Gathers the runs of `NnetComputer` and `Model` objects that have it as `trace`.

    Several computers can share a tracer, on any number of threads; equal computations are counted
    together. Tracing takes a few microseconds for each command, and reads all values that the
    command writes; the times do not include that. If a computation runs on several threads, each
    command waits until the one before has ended.
    """

    def __init__(self, *, most_runs: int = MOST_RUNS) -> None:
        """Makes an empty trace.

        Args:
            most_runs: The number of single runs to keep: the first ones. The sums count all runs.
        """
        self._begin = time.perf_counter()
        self._lock = threading.Lock()
        self._most_runs = most_runs
        self._programs: dict[NnetComputation, _Program] = {}
        self._numbers: dict[int, int] = {}
        self._runs: list[tuple[_Program, int, float, float, int]] = []
        self._num_runs = 0
        self._fault: Fault | None = None

    def __repr__(self) -> str:
        """The number of programs and of runs of commands."""
        return f"<Tracer: {len(self._programs)} programs, {self._num_runs:,} runs of commands>"

    def watch(self, nnet: Nnet, computation: NnetComputation) -> Watch:
        """Returns a watch on the binding of a computation and on its runs."""
        with self._lock:
            program = self._programs.get(computation)
            if program is None:
                program = _Program(nnet, computation, len(self._programs))
                self._programs[computation] = program
        return Watch(functools.partial(self._add, program))

    def _add(
        self,
        program: _Program,
        position: int,
        start: float,
        end: float,
        written: Sequence[Written] | None,
    ) -> None:
        written = written or ()
        largest = [each.largest() for each in written]
        bad = [each for each, size in zip(written, largest, strict=True) if not math.isfinite(size)]
        if bad:
            largest = [each.largest_finite() for each in written]
        with self._lock:
            program.runs[position] += 1
            program.seconds[position] += end - start
            if largest:
                program.largest[position] = np.fmax(program.largest[position], max(largest))
            if bad and self._fault is None:
                self._fault = program.fault(position, bad[0])
            self._num_runs += 1
            if len(self._runs) < self._most_runs:
                thread = threading.get_ident()
                number = self._numbers.setdefault(thread, len(self._numbers))
                self._runs.append((program, position, start - self._begin, end - start, number))

    def trace(self) -> Trace:
        """Returns the trace of all runs so far."""
        with self._lock:
            programs = list(self._programs.values())
            runs, num_runs = list(self._runs), self._num_runs
            fault = self._fault
            profiles = [program.profile() for program in programs]
        places = [
            {command.position: place for place, command in enumerate(profile.commands)}
            for profile in profiles
        ]
        return Trace(
            programs=tuple(profiles),
            runs=tuple(
                CommandRun(
                    program=program.number,
                    command=places[program.number][position],
                    start=start,
                    seconds=seconds,
                    thread=thread,
                )
                for program, position, start, seconds, thread in runs
            ),
            num_left_out=num_runs - len(runs),
            fault=fault,
        )


# ---- the calls of a command ----


class Written(NamedTuple):
    """Rows that a command wrote.

    Attributes:
        matrix: Number of the matrix.
        row: The first row there.
        values: The rows in memory, (rows, columns): a view.
    """

    matrix: int
    row: int
    values: FloatArray

    def largest(self) -> float:
        """The largest magnitude; NaN if any value is."""
        if not self.values.size:
            return 0.0
        return float(np.maximum(self.values.max(), -self.values.min()))

    def largest_finite(self) -> float:
        """The largest magnitude of finite values; 0 if there are none."""
        finite = self.values[np.isfinite(self.values)]
        return float(np.abs(finite).max(initial=0.0))

    def first_fault(self) -> tuple[int, int, float]:
        """Row and column within these rows of the first value that is not finite, and the value."""
        row, column = np.argwhere(~np.isfinite(self.values))[0].tolist()
        return row, column, float(self.values[row, column])


Report = Callable[[int, float, float, Sequence[Written] | None], None]
"""Takes a run of a command: the position of the command, the times at which it began and ended by
`time.perf_counter`, and the rows that it wrote; None if they are incomplete."""


class TimedCalls:
    """The calls of one command, as one timed call."""

    __slots__ = ("_position", "_report", "_written", "calls")

    def __init__(
        self,
        calls: tuple[Call, ...],
        position: int,
        written: Sequence[Written] | None,
        report: Report,
    ) -> None:
        self.calls, self._position = calls, position
        self._written, self._report = written, report

    def __call__(self) -> None:
        """Runs the calls, and reports the run; the time does not include the report."""
        start = time.perf_counter()
        for call in self.calls:
            call()
        self._report(self._position, start, time.perf_counter(), self._written)

    def __len__(self) -> int:
        return len(self.calls)


class Watch:
    """Observes the binding of a computation: notes the rows written, and times the calls."""

    def __init__(self, report: Report) -> None:
        """Begins with the first command; `report` is called after each run of a command."""
        self._report = report
        self._written: list[Written] = []

    def writes(self, matrix: int, row: int, values: FloatArray) -> None:
        """Notes that the current command writes these rows of a matrix; values: a view of them."""
        self._written.append(Written(matrix, row, values))

    def command(
        self, position: int, calls: tuple[Call, ...], *, is_complete: bool
    ) -> tuple[Call, ...]:
        """Returns timed calls in place of the current command's, and begins the next command.

        Args:
            position: Position of the command.
            calls: Its calls; possibly none.
            is_complete: Whether the noted rows are complete once the calls have run.
        """
        written, self._written = self._written, []
        if not calls:
            return ()
        return (TimedCalls(calls, position, written if is_complete else None, self._report),)
