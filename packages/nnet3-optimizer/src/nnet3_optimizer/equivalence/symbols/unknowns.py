"""Unknown functions: the proof knows only that equal arguments of a component give equal values.

Arguments are compared exactly, as Python values; only sums are compared as elements of the field.
Unknown number i is the power a**i of one random element: a linear combination of unknowns, with
shifts, is then a polynomial in a and in the element of a shift. If the polynomial is not zero, it
vanishes for few of their values: at most its degree divided by the size of the field.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from itertools import repeat
from typing import Any

import numpy as np

from nnet3_optimizer.equivalence.symbols.keys import (
    ABSENT,
    ABSENT_ROW,
    Column,
    Keys,
    num_rows,
    rows_of,
)
from nnet3_optimizer.equivalence.symbols.prime_field import PRIME, shifted

_BASE = 0xC2B2AE3D27D4EB4F9FB21C651E98DF25
"""A random element."""

_POWERS = [1]
"""The powers of the base that were needed so far."""


_FEW, _MANY = 4, 1000
"""Products of fewer elements are not worth remembering; products of more take too much memory."""


class _Supply:
    """Elements that are all different."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def one(self) -> int:
        """Returns an element that was never returned before."""
        count = self._count
        self._count = count + 1
        return _POWERS[count] if count < len(_POWERS) else self._powers(count, count + 1)[0]

    def fresh(self, count: int) -> Column:
        """Returns elements that were never returned before."""
        begin = self._count
        self._count = end = begin + count
        return self._powers(begin, end)

    def _powers(self, begin: int, end: int) -> Column:
        while len(_POWERS) < end:
            _POWERS.append(_POWERS[-1] * _BASE % PRIME)
        return _POWERS[begin:end]


class Function:
    """An unknown function of rows, by the arguments that it was asked for so far.

    Computations that are compared mostly make the same calls. So a call is looked up as a whole,
    and split into rows only if it was not made before.
    """

    __slots__ = ("_calls", "_rows", "_supply", "_whole")

    def __init__(self, supply: _Supply) -> None:
        self._supply = supply
        self._rows: dict[Hashable, int] = {}
        self._calls: dict[tuple[Hashable, ...], Column] = {}
        self._whole: list[tuple[tuple[Keys, ...], Column]] = []

    def of_row(self, argument: Hashable) -> int:
        """Returns the value for one argument, the key of a row or a tuple of several."""
        if self._whole:
            self._take_apart()
        value = self._rows.get(argument)
        if value is None:
            value = self._rows[argument] = self._supply.one()
        return value

    def of_rows(self, *arguments: Keys) -> Column:
        """Returns the values for each row of the arguments. Do not change the list.

        Raises:
            ValueError: They do not have the same number of rows.
        """
        found = self._calls.get(arguments)
        if found is None:
            count = num_rows(arguments[-1])
            if not (self._rows or self._whole) and _are_distinct(arguments, count):
                found = self._supply.fresh(count)
                self._whole.append((arguments, found))
            else:
                found = self.of_each(_by_row(arguments))
            self._calls[arguments] = found
        return found

    def of_call(
        self, call: tuple[Hashable, ...], arguments: Callable[[], Iterable[Hashable]]
    ) -> Column:
        """Returns the values for each argument. Do not change the list.

        Args:
            call: The values that all arguments are made of.
            arguments: Makes the arguments, if this call was not made before.
        """
        found = self._calls.get(call)
        if found is None:
            found = self._calls[call] = self.of_each(arguments())
        return found

    def of_each(self, arguments: Iterable[Hashable]) -> Column:
        """Returns the value for each argument."""
        if self._whole:
            self._take_apart()
        arguments, known = list(arguments), self._rows
        new = [argument for argument in arguments if argument not in known]
        if new:
            known.update(zip(new, self._supply.fresh(len(new)), strict=True))
        return [known[argument] for argument in arguments]

    def _take_apart(self) -> None:
        for arguments, values in self._whole:
            self._rows.update(zip(_by_row(arguments), values, strict=True))
        self._whole.clear()


def _are_distinct(arguments: tuple[Keys, ...], count: int) -> bool:
    """Whether no two rows have the same arguments, as far as a single column tells."""
    found = False
    for keys in arguments:
        if keys != ABSENT:
            if num_rows(keys) != count:
                raise ValueError("arguments of a function have different numbers of rows")
            found = found or len(set(keys[1])) == count
    return found


def _by_row(arguments: tuple[Keys, ...]) -> Iterable[Hashable]:
    if len(arguments) == 1:
        return rows_of(arguments[0])
    count = num_rows(arguments[-1])
    rows = [repeat(ABSENT_ROW, count) if keys == ABSENT else rows_of(keys) for keys in arguments]
    return zip(*rows, strict=True)


class Unknowns:
    """The unknowns that are common to the computations that are compared."""

    def __init__(self) -> None:
        self._supply = _Supply()
        self.fresh, self.one = self._supply.fresh, self._supply.one
        self._functions: defaultdict[Hashable, Function] = defaultdict(self._new_function)
        self._blocks: defaultdict[Hashable, Column] = defaultdict(list)
        self._shifted: dict[tuple[int, ...], Column] = {}
        self._numbers: dict[Hashable, int] = {}
        self._objects: dict[int, tuple[Any, int]] = {}

    def _new_function(self) -> Function:
        return Function(self._supply)

    def function(self, name: Hashable) -> Function:
        """Returns the function of a name."""
        return self._functions[name]

    def block(self, name: Hashable, rows: int) -> Column:
        """Returns the first rows of the unknown matrix of a name."""
        column = self._blocks[name]
        if len(column) < rows:
            column += self.fresh(rows - len(column))
        return column[:rows]

    def shifted(self, column: Column, columns: int) -> Column:
        """Returns the symbols of the rest of stretches. Do not change the list."""
        if not columns or not _FEW < len(column) < _MANY:
            return shifted(column, columns)
        key = columns, *column
        found = self._shifted.get(key)
        if found is None:
            found = self._shifted[key] = shifted(column, columns)
        return found

    def number(self, value: Hashable) -> int:
        """Returns the number of a value: equal values, and only those, have the same one."""
        return self._numbers.setdefault(value, len(self._numbers))

    def number_of_object(self, value: Any) -> int:
        """Returns the number of an array, number, tuple or attrs value, by its content."""
        found = self._objects.get(id(value))
        if found is None:
            # A reference to the value keeps its id from being used again.
            found = self._objects[id(value)] = value, self.number(_content(value))
        return found[1]


def _content(value: Any) -> Hashable:
    """Returns a hashable form of an immutable value, with all of its content."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple | list):
        return tuple(map(_content, value))
    fields = getattr(value, "__attrs_attrs__", None)
    if fields is not None:
        return type(value).__name__, *(_content(getattr(value, field.name)) for field in fields)
    result: Hashable = value
    return result
