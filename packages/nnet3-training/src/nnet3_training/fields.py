"""Fields of options that the constructor checks: numbers in a range, integers, switches."""

from __future__ import annotations

import operator
from math import inf
from numbers import Integral, Real
from typing import Any

import attrs

_LARGEST = (2 - 2**-23) * 2.0**127
"""Steps are computed in single precision, where larger numbers are infinite."""
_BOUNDS = {
    "least": (operator.ge, "at least {:g}"),
    "above": (operator.gt, "above {:g}"),
    "most": (operator.le, "at most {:g}"),
    "below": (operator.lt, "below {:g}"),
}


def number(error: type[Exception], default: Any = attrs.NOTHING, **bounds: float) -> Any:
    """A field for a real number, also one of NumPy, or for None if that is its default.

    Args:
        error: The error for other values.
        default: The default.
        bounds: `least` or `above`, and `most` or `below`; by default it is at least 0. Without an
            upper bound it is finite in single precision; `below=inf` is for double
            precision, `most=inf` allows infinity.
    """
    if not bounds.keys() & {"least", "above"}:
        bounds = {"least": 0.0, **bounds}
    held = [(_BOUNDS[kind][0], bound) for kind, bound in bounds.items()]
    expected = [_BOUNDS[kind][1].format(bound) for kind, bound in bounds.items() if bound < inf]
    if bounds.get("below") == inf:
        expected.append("finite")
    if len(bounds) == 1:
        held.append((operator.le, _LARGEST))
        expected.append("finite in single precision")
    text = " and ".join(expected)
    if bounds.keys() == {"least", "most"} and len(expected) == 2:
        text = f"from {bounds['least']:g} to {bounds['most']:g}"

    def convert(value: object) -> object:
        is_plain = type(value) in (int, float)
        return float(value) if isinstance(value, Real) and not is_plain else value

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if value is None and default is None:
            return
        if not (isinstance(value, Real) and all(holds(value, bound) for holds, bound in held)):
            raise error(f"{field.name} must be {text} (got {value!r})")

    return attrs.field(default=default, converter=convert, validator=check)


def integer(error: type[Exception], default: Any = attrs.NOTHING, *, least: int) -> Any:
    """A field for an integer, also one of NumPy, of at least `least`."""
    return attrs.field(default=default, converter=as_integer, validator=is_integer(error, least))


def as_integer(value: object) -> object:
    """An integer, also one of NumPy, as one of Python; anything else stays."""
    return int(value) if not isinstance(value, bool) and isinstance(value, Integral) else value


def is_integer(error: type[Exception], least: int) -> Any:
    """A validator for integers of at least `least`."""

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        count = int(value) if isinstance(value, Integral) else least - 1
        if count < least or type(value) is bool:
            raise error(f"{field.name} must be an integer >= {least} (got {value!r})")

    return check


def switch(error: type[Exception], default: bool) -> Any:
    """A field for True or False, also of NumPy; the word "no" does not count as True."""

    def convert(value: object) -> object:
        return bool(value) if type(value).__name__ in ("bool", "bool_") else value

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if type(value) is not bool:
            raise error(f"{field.name} must be True or False (got {value!r})")

    return attrs.field(default=default, converter=convert, validator=check)
