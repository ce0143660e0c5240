"""Tracer: gathers the runs of computers that are made with it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet

from nnet3_runtime_cuda.tracing.subjects import Subjects
from nnet3_runtime_cuda.tracing.trace import (
    CommandProfile,
    CommandRun,
    Fault,
    ProgramProfile,
    Trace,
)
from nnet3_runtime_cuda.tracing.watch import Watch, Written

MOST_RUNS = 200_000
"""The most single runs of commands in a trace: 1,200 utterances with 170 commands each."""


@attrs.frozen(eq=False)
class _Program:
    """A traced computation and its sums, by the position of commands."""

    nnet: Nnet
    computation: NnetComputation
    runs: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    largest: npt.NDArray[np.float64]


@attrs.frozen
class _FirstFault:
    """The first value that is not finite, and the run that wrote it."""

    program: _Program
    position: int
    run: int
    matrix: int
    row: int
    column: int
    value: float


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
        self._fault: _FirstFault | None = None

    def __repr__(self) -> str:
        """The number of programs and of runs of commands."""
        return f"<Tracer: {len(self._programs)} programs, {self._num_runs:,} runs of commands>"

    def watch(self, nnet: Nnet, computation: NnetComputation) -> Watch:
        """Returns a watch on the binding of a computation and on its runs."""
        size = len(computation.command_table)
        with self._lock:
            program = self._programs.get(computation)
            if program is None:
                program = _Program(
                    nnet,
                    computation,
                    np.zeros(size, np.int64),
                    np.zeros(size),
                    np.full(size, np.nan),
                )
                self._programs[computation] = program
        return Watch(_Hearing(self, program))

    def _heard(
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
                row, column, value = bad[0].first_fault()
                run = int(program.runs[position])
                row += bad[0].row
                self._fault = _FirstFault(program, position, run, bad[0].matrix, row, column, value)
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
            first = self._fault
            profiles = [_profile(program) for program in programs]
        numbers = {id(program): number for number, program in enumerate(programs)}
        places = [
            {command.position: place for place, command in enumerate(profile.commands)}
            for profile in profiles
        ]
        return Trace(
            programs=tuple(profiles),
            runs=tuple(
                CommandRun(
                    program=(number := numbers[id(program)]),
                    command=places[number][position],
                    start=start,
                    seconds=seconds,
                    thread=thread,
                )
                for program, position, start, seconds, thread in runs
            ),
            num_left_out=num_runs - len(runs),
            fault=None if first is None else _fault(first, numbers[id(first.program)]),
        )


class _Hearing:
    """Hands the runs of one computation to the tracer."""

    def __init__(self, tracer: Tracer, program: _Program) -> None:
        self._tracer, self._program = tracer, program

    def heard(
        self, position: int, start: float, end: float, written: Sequence[Written] | None
    ) -> None:
        """See `Hears`."""
        self._tracer._heard(self._program, position, start, end, written)


def _profile(program: _Program) -> ProgramProfile:
    subjects = Subjects(program.nnet, program.computation)
    positions = np.flatnonzero(program.runs).tolist()
    commands = []
    for position, subject in zip(positions, subjects.of(positions), strict=True):
        largest = float(program.largest[position])
        commands.append(
            CommandProfile(
                position=position,
                kind=subject.kind,
                text=subject.text,
                node=subject.node,
                nbytes=subject.nbytes,
                runs=int(program.runs[position]),
                seconds=float(program.seconds[position]),
                largest=None if math.isnan(largest) else largest,
            )
        )
    return ProgramProfile(name=subjects.name(), commands=tuple(commands))


def _fault(first: _FirstFault, number: int) -> Fault:
    subjects = Subjects(first.program.nnet, first.program.computation)
    [subject] = subjects.of([first.position])
    return Fault(
        program=number,
        position=first.position,
        run=first.run,
        node=subject.node,
        text=subject.text,
        row=first.row,
        column=first.column,
        index=subjects.index(first.matrix, first.row),
        value=str(first.value),
    )
