"""Tables read by key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

from nnet3_tables.archive import MATRIX, VECTOR, FloatArray, Kind, read_archive
from nnet3_tables.errors import TableError
from nnet3_tables.script import read_script
from nnet3_tables.sources import opened
from nnet3_tables.specifier import Specifier

_Read = Callable[[], FloatArray]


class _Archive:
    """The values of an archive by key. The archive is read only as far as needed.

    A lookup keeps the values that it has read, unless the options say that nobody will ask for them
    again. With `o` each key is asked for once. With `s` and `cs` the archive is sorted, and keys
    are asked for in that order. A sorted archive is not read to its end for a key that it lacks.
    """

    def __init__(self, specifier: Specifier, kind: Kind) -> None:
        options = specifier.options
        self._path = specifier.target
        self._is_sorted = "s" in options
        self._is_asked_in_order = {"s", "cs"} <= options
        self._is_asked_once = "o" in options
        self._known: dict[str, _Read] = {}
        self._last = self._asked = ""
        self._damage = ""
        self._source = contextlib.ExitStack()
        stream = self._source.enter_context(opened(specifier))
        self._entries = read_archive(stream, self._path, kind)

    def find(self, key: str) -> _Read | None:
        """A function that gives the value of a key; None if there is none.

        Raises:
            TableError: the archive is damaged before that key, or not as its options say.
        """
        if self._is_asked_in_order:
            self._forget_before(key)
        while key not in self._known and not (self._is_sorted and key < self._last):
            if not self._read_on():
                return None
        return self._known.pop(key, None) if self._is_asked_once else self._known.get(key)

    def _forget_before(self, key: str) -> None:
        if key < self._asked:
            raise TableError(
                f"archive '{self._path}': '{key}' is asked for after '{self._asked}', out of the "
                "order that the option cs promises"
            )
        self._asked = key
        self._known = {other: read for other, read in self._known.items() if other >= key}

    def _read_on(self) -> bool:
        """Reads the next value; returns whether there was one."""
        if self._damage:
            raise TableError(self._damage)
        try:
            entry = next(self._entries, None)
            if entry is None:
                return False
            key, read = entry
            self._check(key)
        except TableError as error:
            self._damage = str(error)
            raise
        self._last = key
        if not (self._is_asked_in_order and key < self._asked):
            self._known[key] = read
        return True

    def _check(self, key: str) -> None:
        """Raises a TableError if a key comes again, or out of order."""
        if self._is_sorted and key < self._last:
            raise TableError(
                f"archive '{self._path}': '{key}' comes after '{self._last}', out of the order "
                "that the option s promises"
            )
        if key in self._known or (self._is_sorted and key == self._last):
            raise TableError(f"archive '{self._path}': the key '{key}' comes twice")

    def close(self, *raised: Any) -> None:
        """Closes it; raises a TableError if a command failed."""
        self._source.__exit__(*raised)


class _Lookup:
    """Values of a table by key; use as a context manager, so that a command is waited for."""

    _kind: ClassVar[Kind]

    def __init__(self, rspecifier: str) -> None:
        self._specifier = Specifier.to_read(rspecifier)
        self._archive: _Archive | None = None
        self._script: dict[str, _Read] = {}
        self._is_closed = False
        if self._specifier.is_script:
            for entry in read_script(self._specifier):
                if entry.key in self._script:
                    raise TableError(f"{entry.place}: the key '{entry.key}' comes twice")
                self._script[entry.key] = partial(entry.read, self._kind)
        else:
            self._archive = _Archive(self._specifier, self._kind)

    def __repr__(self) -> str:
        """The kind of lookup, and the table."""
        return f"<{type(self).__name__} in '{self._specifier.target}'>"

    def get(self, key: str) -> FloatArray | None:
        """The value of a key; None if there is none.

        Raises:
            TableError: the value cannot be read, or the table is closed.
        """
        if self._is_closed:
            raise TableError(f"cannot read '{self._specifier.target}': the table is closed")
        try:
            find = self._script.get if self._archive is None else self._archive.find
            read = find(key)
            return None if read is None else read()
        except TableError:
            if self._specifier.is_permissive:
                return None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        """Closes the table; raises a TableError if a command failed."""
        self._is_closed = True
        if self._archive is not None:
            self._archive.close(*raised)


class MatrixLookup(_Lookup):
    """Matrices of a table by key."""

    _kind = MATRIX


class VectorLookup(_Lookup):
    """Vectors of a table by key."""

    _kind = VECTOR
