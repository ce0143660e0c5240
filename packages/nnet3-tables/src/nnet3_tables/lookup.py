"""Tables read by key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Generic, Self, TypeVar

from nnet3_descriptors import Nnet3Error
from nnet3_descriptors.files import Entry, Reader

from nnet3_tables.archive import FloatArray, matrix, read_archive, vector
from nnet3_tables.errors import TableError
from nnet3_tables.reading import warn
from nnet3_tables.script import ScriptLine, read_script
from nnet3_tables.sources import opened
from nnet3_tables.specifier import Specifier

T = TypeVar("T")


class _Archive(Generic[T]):
    """The values of an archive by key. The archive is read only as far as needed.

    A lookup keeps the values that it has read, unless the options say that nobody will ask for them
    again. With `o` each key is asked for once. With `s` and `cs` the archive is sorted, and keys
    are asked for in that order. A sorted archive is not read to its end for a key that it lacks.
    """

    def __init__(self, specifier: Specifier, decode: Callable[[Reader], T]) -> None:
        options = specifier.options
        self._path = specifier.target
        self._is_sorted = "s" in options
        self._is_asked_in_order = {"s", "cs"} <= options
        self._is_asked_once = "o" in options
        self._is_permissive = specifier.is_permissive
        self._known: dict[str, T] = {}
        self._last = self._asked = ""
        self._damage = ""
        self._source = contextlib.ExitStack()
        stream = self._source.enter_context(opened(self._path))
        self._entries: Iterator[Entry[T]] = read_archive(stream, self._path, decode)

    def find(self, key: str) -> T | None:
        """The value of a key; None if there is none.

        Raises:
            TableError: the archive is damaged before that key, or not as its options say.
        """
        if self._is_asked_in_order:
            self._forget_before(key)
        while key not in self._known and not (self._is_sorted and key < self._last):
            if not self._read_on():
                return None
        return self._known.pop(key, None) if self._is_asked_once else self._known.get(key)

    def forget(self, key: str) -> None:
        """Drops a value that was read."""
        self._known.pop(key, None)

    def _forget_before(self, key: str) -> None:
        if key < self._asked:
            raise TableError(
                f"archive '{self._path}': '{key}' is asked for after '{self._asked}', out of the "
                "order that the option cs promises"
            )
        self._asked = key
        self._known = {other: value for other, value in self._known.items() if other >= key}

    def _read_on(self) -> bool:
        """Reads the next value; returns whether there was one.

        Raises:
            TableError: the archive is damaged, or its command has failed.
        """
        if self._damage:
            if self._is_permissive:
                return False
            raise TableError(self._damage)
        try:
            entry = next(self._entries, None)
            if entry is None:
                self._source.close()
                return False
            self._check(entry.key)
        except Nnet3Error as error:
            self._damage = str(error)
            raise
        self._last = entry.key
        if not (self._is_asked_in_order and entry.key < self._asked):
            self._known[entry.key] = entry.value
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


class ObjectLookup(Generic[T]):
    """Objects of a table by key; use as a context manager, so that a command is waited for."""

    def __init__(self, rspecifier: str, decode: Callable[[Reader], T]) -> None:
        """Opens the table.

        Args:
            rspecifier: `ark:FILE`, `scp:FILE`, `ark,s,cs:COMMAND |`, ...
            decode: Takes one object from a reader; the object must not refer to the reader's data.

        Raises:
            TableError: the table cannot be opened, or its script file has a key twice.
        """
        self._specifier = Specifier.to_read(rspecifier)
        self._decode = decode
        self._archive: _Archive[T] | None = None
        self._script: dict[str, ScriptLine] = {}
        self._is_closed = False
        if self._specifier.is_script:
            for line in read_script(self._specifier):
                if line.key in self._script:
                    raise TableError(f"{line.place}: the key '{line.key}' comes twice")
                self._script[line.key] = line
        else:
            self._archive = _Archive(self._specifier, decode)

    def __repr__(self) -> str:
        """The kind of lookup, and the table."""
        return f"<{type(self).__name__} in '{self._specifier.target}'>"

    def get(self, key: str) -> T | None:
        """The value of a key; None if there is none.

        Raises:
            TableError: the value cannot be read, or the table is closed. With the option `p` there
                is no value then, and a `TableWarning`.
        """
        if self._is_closed:
            raise TableError(f"cannot read '{self._specifier.target}': the table is closed")
        try:
            if self._archive is not None:
                return self._archive.find(key)
            line = self._script.get(key)
            return None if line is None else line.read(self._decode).value
        except Nnet3Error as error:
            if not self._specifier.is_permissive:
                raise
            warn(f"{error}; left out because of the option p")
            return None

    def take(self, key: str) -> T | None:
        """The value of a key, which nobody will ask for again; so it is not kept in memory.

        Raises:
            TableError: see `get`.
        """
        value = self.get(key)
        if self._archive is not None:
            self._archive.forget(key)
        return value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        """Closes the table; raises a TableError if a command failed."""
        self._is_closed = True
        if self._archive is not None:
            self._archive.close(*raised)


class MatrixLookup(ObjectLookup[FloatArray]):
    """Matrices of a table by key."""

    def __init__(self, rspecifier: str) -> None:
        """Opens the table; see `ObjectLookup`."""
        super().__init__(rspecifier, matrix)


class VectorLookup(ObjectLookup[FloatArray]):
    """Vectors of a table by key."""

    def __init__(self, rspecifier: str) -> None:
        """Opens the table; see `ObjectLookup`."""
        super().__init__(rspecifier, vector)
