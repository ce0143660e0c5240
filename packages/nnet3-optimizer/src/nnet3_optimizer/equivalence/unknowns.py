"""Unknown functions: what a component computes, said only to be the same for the same arguments.

Arguments are compared exactly, as Python values; only sums are compared as elements of the field.
Unknown number i is the power a**i of one random element: a linear combination of unknowns, with
shifts, is then a polynomial in a and in the element of a shift, and if it is not zero it vanishes
for few of their values, at most its degree divided by the size of the field.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from nnet3_optimizer.equivalence.field import PRIME

_BASE = 0xC2B2AE3D27D4EB4F9FB21C651E98DF25
"""A random element."""

_POWERS = [1]
"""The powers of the base, as many as were needed so far."""

Function = dict[Hashable, int]
"""The values of an unknown function for the arguments that were asked for."""


class Unknowns:
    """All unknowns that computations to be compared have in common."""

    def __init__(self) -> None:
        self._count = 0
        self._functions: dict[Hashable, Function] = {}
        self._numbers: dict[Hashable, int] = {}
        self._objects: dict[int, tuple[Any, int]] = {}

    def fresh(self, count: int) -> list[int]:
        """Returns elements that nothing else has."""
        begin = self._count
        self._count = end = begin + count
        while len(_POWERS) < end:
            _POWERS.append(_POWERS[-1] * _BASE % PRIME)
        return _POWERS[begin:end]

    def values(self, name: Hashable, arguments: Iterable[Hashable]) -> list[int]:
        """Returns what the function of a name gives for each argument."""
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = {}
        if not isinstance(arguments, list):
            arguments = list(arguments)
        if len(arguments) == 1:
            value = function.get(arguments[0])
            if value is None:
                (value,) = self.fresh(1)
                function[arguments[0]] = value
            return [value]
        new = [argument for argument in arguments if argument not in function]
        if new:
            function.update(zip(new, self.fresh(len(new)), strict=True))
        return [function[argument] for argument in arguments]

    def number(self, value: Hashable) -> int:
        """Returns the number of a value: equal values, and only those, have the same one."""
        return self._numbers.setdefault(value, len(self._numbers))

    def number_of_object(self, value: Any) -> int:
        """Returns the number of an array, number, tuple or attrs value, by its content."""
        found = self._objects.get(id(value))
        if found is None:
            # The value is kept, so that its id stays its own.
            found = self._objects[id(value)] = value, self.number(_content(value))
        return found[1]


def _content(value: Any) -> Hashable:
    """Returns something hashable that says all that an immutable value holds."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple | list):
        return tuple(map(_content, value))
    fields = getattr(value, "__attrs_attrs__", None)
    if fields is not None:
        return type(value).__name__, *(_content(getattr(value, field.name)) for field in fields)
    result: Hashable = value
    return result
