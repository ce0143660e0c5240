"""Judges a runtime: runs it on cases, and compares its results with the expected ones."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Nnet, Nnet3Error

from nnet3_conformance.cases import PROGRAMS, SMALLEST_SCALE, Case, ConformanceError, read_arrays

UNSUPPORTED = 3
"""The exit status of a program that does not support a case."""


@attrs.frozen(kw_only=True)
class Verdict:
    """The judgement of a runtime on one computation of a case.

    Attributes:
        case: The name of the case.
        program: "compiled" or "optimized".
        outcome: "passed", "failed", or "not supported" if the runtime refused it.
        message: The failure and its size, or the reason of the refusal.
        differences: For "output", "input_deriv" and "gradient", the largest relative difference.
    """

    case: str
    program: str
    outcome: str
    message: str = ""
    differences: Mapping[str, float] = attrs.field(factory=dict)

    def __str__(self) -> str:
        numbers = ", ".join(f"{role} {value:.1e}" for role, value in self.differences.items())
        rest = self.message or numbers
        return f"{self.outcome:13} {self.case} {self.program}" + (f": {rest}" if rest else "")


class _NoResultsError(Exception):
    """A run has no results: the outcome of its verdict, and why."""


def judge_class(
    cases: Iterable[Case],
    runtime: Callable[..., Any],
    *,
    unsupported: Sequence[type[Exception]] = (),
) -> Iterator[Verdict]:
    """Judges a class that is called `runtime(nnet, computation)`, like this project's runtimes.

    Its method `forward(inputs)` returns outputs by node. If it has `backward(output_derivs)`, which
    returns derivatives by input node, and `gradient`, a network, these are judged too. An error
    that the class raises is a failure of the case.

    Args:
        cases: The cases.
        runtime: The class.
        unsupported: Errors by which the runtime refuses a case.
    """

    def run(case: Case, program: str) -> dict[str, Any]:
        try:
            try:
                computer = runtime(case.nnet, case.programs[program])
            except tuple(unsupported) as error:
                raise _NoResultsError("not supported", str(error)) from error
            found = _named("output", computer.forward(case.part(case.given, "input")))
            if case.entry.backward and hasattr(computer, "backward"):
                derivatives = computer.backward(case.part(case.given, "output_deriv"))
                found |= _named("input_deriv", derivatives)
                if case.request.need_model_derivative and hasattr(computer, "gradient"):
                    found |= _named("gradient", gradient_arrays(computer.gradient))
        except _NoResultsError:
            raise
        except Exception as error:  # whatever a runtime in the making raises
            reason = str(error) if isinstance(error, Nnet3Error) else repr(error)
            raise _NoResultsError("failed", reason) from error
        return found

    return _judge(cases, run)


def judge_program(
    cases: Iterable[Case], command: Sequence[str], *, seconds: float = 60.0
) -> Iterator[Verdict]:
    """Judges a program that is called as COMMAND FOLDER PROGRAM FOUND for each case.

    It reads FOLDER/network, FOLDER/PROGRAM and FOLDER/given, and writes FOUND, a safetensors file
    of float32 with the names of "expected"; derivatives and gradient can be missing. It ends with
    status 0. If it does not support the case, it prints the reason as a line on standard error, and
    ends with status 3.

    Args:
        cases: The cases, which must be in a folder.
        command: The program and its first arguments.
        seconds: A case fails after this many seconds.

    Raises:
        ConformanceError: The program cannot be started, or a case is in no folder.
    """
    if not command:
        raise ConformanceError("expected a program and its arguments, found nothing")

    def run(case: Case, program: str) -> dict[str, Any]:
        if case.folder is None:
            raise ConformanceError(f"the case '{case.entry.name}' has no files")
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder, "found")
            arguments = [*command, str(case.folder), program, str(found)]
            try:
                done = subprocess.run(
                    arguments,
                    capture_output=True,
                    encoding="utf-8",
                    errors="replace",
                    timeout=seconds,
                    check=False,
                )
            except OSError as error:
                raise ConformanceError(f"cannot run {command[0]}: {error.strerror}") from error
            except subprocess.TimeoutExpired as error:
                raise _NoResultsError("failed", f"no result after {seconds:g} s") from error
            said = done.stderr.strip().splitlines()[-1:] or ["nothing on standard error"]
            if done.returncode == UNSUPPORTED:
                raise _NoResultsError("not supported", said[0])
            if done.returncode != 0:
                reason = f"ended with status {done.returncode}: {said[0]}"
                raise _NoResultsError("failed", reason)
            try:
                return dict(read_arrays(found))
            except ConformanceError as error:
                reason = f"the results cannot be read: {error}"
                raise _NoResultsError("failed", reason) from error

    return _judge(cases, run)


def gradient_arrays(gradient: Nnet) -> dict[str, Any]:
    """Returns the parameters of a network by "COMPONENT.FIELD".

    Raises:
        NetworkError: two have the same name.
    """
    arrays = gradient.state_dict()
    return {
        key: arrays[key]
        for name, component in zip(gradient.component_names, gradient.components, strict=True)
        for key in (f"{name}.{field}" for field in component.parameters)
    }


def _named(role: str, arrays: Any) -> dict[str, Any]:
    if not isinstance(arrays, Mapping):
        found = type(arrays).__name__
        reason = f"{role}: expected a mapping from nodes to arrays, found {found}"
        raise _NoResultsError("failed", reason)
    return {f"{role}/{name}": array for name, array in arrays.items()}


def _judge(cases: Iterable[Case], run: Callable[[Case, str], dict[str, Any]]) -> Iterator[Verdict]:
    for case in cases:
        for program in PROGRAMS:
            try:
                found = run(case, program)
            except _NoResultsError as error:
                outcome, message = error.args
                yield Verdict(
                    case=case.entry.name, program=program, outcome=outcome, message=message
                )
            else:
                yield compare(case, program, found)


def compare(case: Case, program: str, found: Mapping[str, Any]) -> Verdict:
    """Returns the verdict on the results of a runtime.

    The outputs must be complete; of derivatives and of gradients, all or none must be there.
    """
    faults: list[str] = []
    differences: dict[str, float] = {}
    for role, tolerance in case.entry.tolerances.items():
        expected, given = case.part(case.expected, role), case.part(found, role)
        if role != "output" and not given:
            continue
        if expected.keys() != given.keys():
            names = ", ".join(sorted(given)) or "none"
            faults.append(f"{role}: expected {', '.join(sorted(expected))}, found {names}")
            continue
        for name, right in expected.items():
            values = given[name]
            try:
                values = _real(values)
            except Exception as error:  # whatever a runtime in the making raises
                faults.append(f"{role} {name}: {error}")
                continue
            if values.shape != right.shape:
                faults.append(f"{role} {name}: expected shape {right.shape}, found {values.shape}")
                continue
            scale = max(float(np.abs(right).max(initial=0.0)), SMALLEST_SCALE)
            difference = np.abs(values - right).max(initial=0.0) / scale
            differences[role] = max(differences.get(role, 0.0), float(difference))
            if not difference <= tolerance:
                faults.append(
                    f"{role} {name}: differs by {difference:.1e}, more than {tolerance:g}"
                )
    return Verdict(
        case=case.entry.name,
        program=program,
        outcome="failed" if faults else "passed",
        message="; ".join(faults),
        differences=differences,
    )


def _real(values: Any) -> npt.NDArray[np.float64]:
    """Returns the values of a runtime as numbers.

    Raises:
        TypeError: They are complex, or no numbers.
        Exception: The error of an object that does not become an array.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"expected real numbers, found {array.dtype}")
    return array.astype(np.float64)
