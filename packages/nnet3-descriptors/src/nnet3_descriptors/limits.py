"""Limits on the sizes of networks and requests, checked before memory is allocated.

A number of a config line, descriptor or request takes ten characters and can ask for a terabyte.
The defaults leave room for every network that people train; whoever needs more raises them:

    with use_limits(Limits(parameters=4_000_000_000)):
        nnet = parse_config(text)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs

from nnet3_descriptors.errors import LimitError, NetworkError


def _check_size(_: object, attribute: "attrs.Attribute[int]", value: object) -> None:
    if type(value) is not int or value < 0:
        raise NetworkError(f"the limit '{attribute.name}' must be an integer >= 0 (got {value!r})")


@attrs.frozen(kw_only=True)
class Limits:
    """The largest sizes that are accepted.

    Attributes:
        nodes: Nodes of a network; a component node counts as two, as its input is a node too.
        dim: Columns of a node or component, or of a constant in a descriptor.
        parameters: Values that config lines may initialize, in all components of a network.
        offsets: Input rows that one row of a component's output may read.
        reads: Input rows that all rows of a node read together, or that a component's index rules
            list at a time.
        modulus: Frames after which the pattern of a node's reads repeats: the modulus of Round(),
            the number of inputs of Switch(), the period of statistics. A rule is made for each
            frame.
        rows: Rows of an input or output that `from_range` makes, or of a matrix with padding;
            values of a sparse matrix, zeros included.
        cindexes: Size of the box that all nodes' rows of a request span: the number of nodes times
            the values of t, of x, and the patterns of sequences that differ. A search takes some
            bits for each. The limit is a tenth of this for a request that names less than a
            thousandth of the indexes that it spans.
        matrix_bytes: Memory for the matrices of a computation that nnet3-runtime-cuda binds, in
            bytes.
    """

    nodes: int = attrs.field(default=50_000, validator=_check_size)
    dim: int = attrs.field(default=10_000_000, validator=_check_size)
    parameters: int = attrs.field(default=1_000_000_000, validator=_check_size)
    offsets: int = attrs.field(default=100_000, validator=_check_size)
    reads: int = attrs.field(default=20_000_000, validator=_check_size)
    modulus: int = attrs.field(default=10_000, validator=_check_size)
    rows: int = attrs.field(default=100_000_000, validator=_check_size)
    cindexes: int = attrs.field(default=1_000_000_000, validator=_check_size)
    matrix_bytes: int = attrs.field(default=1 << 37, validator=_check_size)


_current: ContextVar[Limits] = ContextVar("limits", default=Limits())  # noqa: B039 (frozen)


def current_limits() -> Limits:
    """Returns the limits that are in force."""
    return _current.get()


@contextmanager
def use_limits(limits: Limits) -> Iterator[Limits]:
    """Sets other limits within a `with` statement.

    They hold in the thread (or asynchronous task) of the statement; other threads keep theirs.
    """
    token = _current.set(limits)
    try:
        yield limits
    finally:
        _current.reset(token)


def check_limit(
    name: str, needed: int, what: str, error: type[Exception] = LimitError, **details: Any
) -> None:
    """Raises an error if more is needed than a limit allows.

    Args:
        name: Name of the limit.
        needed: The needed size.
        what: The thing that needs it, as the beginning of the message.
        error: Class of the error.
        details: More arguments of the error.
    """
    limit = getattr(_current.get(), name)
    if needed > limit:
        raise error(f"{what}: {needed} is above the limit of {limit} (Limits.{name})", **details)
