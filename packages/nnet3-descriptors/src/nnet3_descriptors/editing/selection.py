"""Choosing components by name and class."""

import logging
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from nnet3_descriptors import components, errors
from nnet3_descriptors.nnet import Nnet

C = TypeVar("C", bound=components.Component)

_LOGGER: Final = logging.getLogger(__name__)


def matches(name: str, pattern: str) -> bool:
    """Tells whether a name matches a pattern in which "*" stands for any characters, or none.

    Raises:
        NetworkError: the pattern is no text.
    """
    if not isinstance(pattern, str):
        raise errors.NetworkError(f"expected a pattern of names, found {type(pattern).__name__}")
    head, *pieces = pattern.split("*")
    if not pieces:
        return name == pattern
    *middle, tail = pieces
    if not name.startswith(head) or len(name) < len(head) + len(tail) or not name.endswith(tail):
        return False
    position, end = len(head), len(name) - len(tail)
    for piece in middle:
        found = name.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True


def warn_of_none(count: int, pattern: str, kind: str) -> None:
    """Logs a warning if a pattern has matched nothing.

    Args:
        count: The number found.
        pattern: The pattern.
        kind: The kind of thing that was sought.
    """
    if not count and pattern.strip("*"):
        _LOGGER.warning("Nothing is changed: no %s has a name like '%s'.", kind, pattern)


def named_components(nnet: Nnet, pattern: str) -> Iterator[tuple[str, components.Component]]:
    """Returns the components whose names match a pattern, with their names."""
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        if matches(name, pattern):
            yield name, component


def replace_components(
    nnet: Nnet, pattern: str, cls: type[C], change: Callable[[C], components.Component]
) -> tuple[Nnet, int]:
    """Returns the network with the components of a class changed, and their number.

    Args:
        nnet: The network.
        pattern: The names of the components that may be changed.
        cls: The class that they have, or that they are derived from.
        change: Gives the new component.
    """
    changed = {
        name: change(component)
        for name, component in named_components(nnet, pattern)
        if isinstance(component, cls)
    }
    return nnet.with_components(changed), len(changed)
