"""Closed forms: the rows that a component reads, as offsets in t instead of row by row.

For a graph of many frames, the builder asks index rules about every row. If a row reads rows of the
same n and x, at times that depend only on its own t, the class can declare the offsets once. Large
requests then cost no more than small ones. Closed form and index rules must give the same answers.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import attrs

from nnet3_descriptors.errors import NetworkError


def _as_range(value: object) -> range:
    if not isinstance(value, range) or not value or value.step < 1:
        raise NetworkError(f"offsets must be an ascending range that is not empty, got {value!r}")
    return value


def _as_offsets(values: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, values))
    except TypeError as error:
        raise NetworkError(f"offsets must be integers, got {values!r}") from error


@attrs.frozen
class AtOffsets:
    """A row reads the rows at some distances in t.

    Attributes:
        offsets: The distances, in frames; each once. Empty for rows that read nothing.
        optional: The distances at which a row may be missing; it is read if it can be computed. At
            the other distances a row is required.
    """

    offsets: tuple[int, ...] = attrs.field(converter=_as_offsets)
    optional: tuple[int, ...] = attrs.field(default=(), converter=_as_offsets, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Checks that the offsets differ, and that the optional ones are among them."""
        if len(set(self.offsets)) != len(self.offsets):
            raise NetworkError(f"offsets must differ, got {self.offsets}")
        others = [offset for offset in self.optional if offset not in self.offsets]
        if others:
            raise NetworkError(
                f"optional offsets must be among the offsets {self.offsets}, got {others[0]}"
            )


@attrs.frozen
class AnyWithin:
    """A row reads all computable rows of a window in t; it needs at least one.

    Attributes:
        offsets: The window: distances in frames, ascending in equal steps.
    """

    offsets: range = attrs.field(converter=_as_range)


ClosedForm = tuple[AtOffsets | AnyWithin | None, ...]
"""Element r is the rule for rows with t modulo the length of the tuple equal to r; None for rows
that cannot be computed. The length divides the modulus of the component."""


@functools.cache
def has_closed_form(component_type: type[Any]) -> bool:
    """Tells whether no class overrides index rules below the one that says the closed form."""
    names = ("closed_form", "input_dependencies", "is_computable")
    definers = [
        next(place for place, each in enumerate(component_type.__mro__) if name in vars(each))
        for name in names
    ]
    return definers[0] == min(definers)
