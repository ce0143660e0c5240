"""Every operation of a tape as a plain loop over Python's numbers.

A case draws the operands of a trial, and states the expected results: for each output its values,
and the allowed error of each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import attrs
import numpy as np
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from operation_places import FLOATS, Draw, Place, rounded

SINGLE, DOUBLE = FLOATS
BOOL, BYTE, INT64 = (np.dtype(kind) for kind in (np.bool_, np.uint8, np.int64))


@attrs.frozen
class Result:
    """The expected values of an output.

    Attributes:
        place: The output.
        values: The expected elements.
        errors: The allowed error of each element.
    """

    place: Place
    values: Sequence[float]
    errors: Sequence[float]

    @classmethod
    def exact(cls, place: Place, values: Sequence[float]) -> Result:
        """Expects these values exactly, after rounding to the type."""
        values = [rounded(value, place.dtype) for value in values]
        return cls(place, values, [0.0] * len(values))

    @classmethod
    def summed(cls, place: Place, terms: Sequence[Sequence[float]]) -> Result:
        """Expects sums of terms, added in any order."""
        epsilon = float(np.finfo(place.dtype).eps)
        errors = [epsilon * (len(each) + 2) * sum(map(abs, each)) for each in terms]
        return cls(place, [math.fsum(each) for each in terms], errors)


@attrs.frozen
class Trial:
    """An operation with operands.

    Attributes:
        record: Records the operation.
        results: The expected results.
    """

    record: Callable[[NumpyTape], object]
    results: tuple[Result, ...]


def trial(name: str, *operands: object, result: Result) -> Trial:
    """A call of a tape's method with operands, and with the output as the last."""
    given = [each.array if isinstance(each, Place) else each for each in operands]
    return Trial(lambda tape: getattr(tape, name)(*given, result.place.array), (result,))


Case = Callable[[Draw], Trial]
CASES: dict[str, Case] = {}
"""The cases, by the name of the tape's method, or of another function that records."""


def case(*names: str) -> Callable[[Case], Case]:
    """Registers a function as the case of operations."""

    def register(function: Case) -> Case:
        CASES.update(dict.fromkeys(names, function))
        return function

    return register


def broadcast(place: Place, shape: Sequence[int]) -> list[float]:
    """The elements of an array that is broadcast to a shape."""
    if place.shape == tuple(shape):
        return place.values
    own = (1,) * (len(shape) - len(place.shape)) + place.shape
    values, found = place.values, []
    for index in itertools.product(*map(range, shape)):
        at = 0
        for position, length in zip(index, own, strict=True):
            at = at * length + (position if length > 1 else 0)
        found.append(values[at])
    return found


def rows_of(place: Place) -> list[list[float]]:
    """The elements of a matrix by row."""
    values, columns = place.values, place.shape[1]
    return [values[row * columns : (row + 1) * columns] for row in range(place.shape[0])]
