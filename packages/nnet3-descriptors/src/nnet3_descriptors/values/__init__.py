"""Frozen values: their arrays, bytes and files, and results that are computed once for each."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, Self, TypeVar

from nnet3_descriptors.files import atomic_write, source
from nnet3_descriptors.frozen_arrays import (
    ByFields,
    ReadOnlyArrays,
    array_of,
    frozen,
    has_masks,
    is_frozen,
    is_masked,
    read_only,
)

__all__ = [
    "ByFields",
    "NotCopied",
    "ReadOnlyArrays",
    "Serialized",
    "array_of",
    "changing",
    "frozen",
    "has_masks",
    "is_frozen",
    "is_integer",
    "is_masked",
    "read_only",
    "remembered",
    "shown",
]


def is_integer(value: object) -> bool:
    """Whether a value is an integer of Python or NumPy, and no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


A = TypeVar("A")
R = TypeVar("R")


def remembered(make: Callable[[A], R]) -> Callable[[A], R]:
    """Decorates a function of one frozen object, so that it runs once for each object.

    Networks are told apart by identity: a comparison by content would read all parameters. The
    result must not refer to the object: it would keep the object, and itself, alive.
    """
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


class NotCopied:
    """Base of what changes as it is used, or holds memory and threads: a copy would spoil it."""

    _instead: ClassVar[str] = "begin another one"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled; {self._instead}")


@contextlib.contextmanager
def changing(thing: Any, refusal: Exception | None = None) -> Iterator[None]:
    """A context of changes, which all are made; an error within it, or Ctrl-C, breaks the object.

    Args:
        thing: What changes; its attribute `is_broken` then is true.
        refusal: The error of an object that was broken before; None to go on with it.
    """
    if refusal is not None and getattr(thing, "is_broken", False):
        raise refusal
    thing.is_broken = True
    yield
    thing.is_broken = False


class Serialized(ReadOnlyArrays):
    """Base of the attrs classes whose instances are exchanged between processes.

    The README of the package that owns the class describes the content of the container.
    """

    __slots__ = ()

    FORMAT: ClassVar[str]
    """Name of the format, such as "nnet3.nnet"."""
    VERSION: ClassVar[int]
    """Version of the format; raised when older readers would misread a file."""
    UPGRADES: ClassVar[Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]] = MappingProxyType(
        {}
    )
    """For each older version that can be read, the function that turns its content into that of the
    next."""

    def to_bytes(self) -> bytes:
        """Returns the value as a safetensors container; equal values give equal bytes."""
        from nnet3_descriptors.serialization import to_container  # takes a while to import

        return to_container(self, format=self.FORMAT, version=self.VERSION)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Returns the inverse of `to_bytes`.

        Raises:
            SerializationError: The bytes are not such a container, or hold no valid value.
        """
        from nnet3_descriptors.serialization import from_container

        return from_container(
            data, cls, format=cls.FORMAT, version=cls.VERSION, upgrades=cls.UPGRADES
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_bytes()` to a file, which is replaced at once or not at all.

        Raises:
            FileError: The file cannot be written.
        """
        atomic_write.write_atomically(path, [self.to_bytes()])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a file that `save` has written.

        Raises:
            FileError: The file cannot be read; for a missing file it is a FileNotFoundError.
            SerializationError: It holds no such value; see `from_bytes`.
        """
        return cls.from_bytes(source.read_file(path))


def shown(picture: str, value: object) -> str | None:
    """Returns a value as a part of a page, or None where nnet3-report is not installed.

    A notebook shows the text of a value whose `_repr_html_` returns None.

    Args:
        picture: The name of a function of nnet3_report.
        value: Its argument.
    """
    try:
        report = importlib.import_module("nnet3_report")
    except ModuleNotFoundError as error:
        if error.name != "nnet3_report":
            raise
        return None
    drawn: str = getattr(report, picture)(value)
    return drawn
