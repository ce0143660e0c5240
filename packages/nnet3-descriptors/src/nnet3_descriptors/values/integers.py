"""Numbers that callers give: which of them count as integers."""

from __future__ import annotations

from numbers import Integral


def is_integer(value: object) -> bool:
    """Whether a value is an integer of Python or NumPy, and no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)
