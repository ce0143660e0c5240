"""The promises of components: properties, and the context of components in closed form.

For a graph of many frames, the builder asks index rules about every row. If a row reads rows of the
same n and x, at times that depend only on its own t, the class can declare the offsets once, in
closed form. Large requests then cost no more than small ones. Closed form and index rules must give
the same answers.
"""

from __future__ import annotations

import enum
import functools
import operator
from typing import Any

import attrs

from nnet3_descriptors.errors import NetworkError


class ComponentProperties(enum.IntFlag):
    """Promises of a component; the bits are those of Kaldi."""

    SIMPLE = 0x0001
    """Row i of the output depends on row i of the input alone, whatever its index."""
    UPDATABLE = 0x0002
    """It has parameters that training changes."""
    PROPAGATE_IN_PLACE = 0x0004
    """Input and output of the forward computation may be the same matrix."""
    PROPAGATE_ADDS = 0x0008
    """The forward computation adds to its output instead of setting it (unless in place)."""
    REORDERS_INDEXES = 0x0010
    """`reorder_indexes` may change the order of the rows or pad them."""
    BACKPROP_ADDS = 0x0020
    """The backward computation adds to the input derivative instead of setting it."""
    BACKPROP_NEEDS_INPUT = 0x0040
    """The backward computation reads the input of the forward computation."""
    BACKPROP_NEEDS_OUTPUT = 0x0080
    """The backward computation reads the output of the forward computation."""
    BACKPROP_IN_PLACE = 0x0100
    """The derivatives at input and output may be the same matrix."""
    STORES_STATS = 0x0200
    """It accumulates statistics of its activations."""
    INPUT_CONTIGUOUS = 0x0400
    """Rows of the input, and of its derivative, follow each other without a gap."""
    OUTPUT_CONTIGUOUS = 0x0800
    """Rows of the output, and of its derivative, follow each other without a gap."""
    USES_MEMO = 0x1000
    """The forward computation hands a memo to the backward computation."""
    RANDOM = 0x2000
    """Its output depends on a random generator."""


IN_PLACE = (
    ComponentProperties.SIMPLE
    | ComponentProperties.PROPAGATE_IN_PLACE
    | ComponentProperties.BACKPROP_IN_PLACE
)
"""The promises of element-wise maps."""

TRAINED = (
    ComponentProperties.UPDATABLE
    | ComponentProperties.BACKPROP_NEEDS_INPUT
    | ComponentProperties.BACKPROP_ADDS
)
"""The promises of maps with parameters, whose gradient is a product of input and derivative."""

CONTIGUOUS = ComponentProperties.INPUT_CONTIGUOUS | ComponentProperties.OUTPUT_CONTIGUOUS
"""The promises of types that look at blocks of columns as rows."""


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
