"""Results that are remembered as long as their argument lives.

A network is frozen, so results that depend only on it (rules, orders of nodes) have to be computed
only once. Networks are told apart by identity: a comparison by content would read all parameters.

The result must not refer to the object: it would keep the object, and itself, alive.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

A = TypeVar("A")
R = TypeVar("R")


def remembered(make: Callable[[A], R]) -> Callable[[A], R]:
    """Decorates a function of one frozen object, so that it runs once for each object."""
    known: dict[int, tuple[weakref.ref[Any], R]] = {}

    @functools.wraps(make)
    def look_up(argument: A) -> R:
        key = id(argument)
        entry = known.get(key)
        if entry is not None and entry[0]() is argument:
            return entry[1]
        result = make(argument)
        known[key] = (weakref.ref(argument, lambda _: known.pop(key, None)), result)
        return result

    return look_up
