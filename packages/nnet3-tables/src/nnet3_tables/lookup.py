"""Tables read by key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from nnet3_descriptors import Nnet3Error
from nnet3_descriptors.files import Reader

from nnet3_tables import entries
from nnet3_tables.errors import TableError
from nnet3_tables.reading import warn
from nnet3_tables.sources import opened
from nnet3_tables.specifier import Specifier

T = TypeVar("T")


class ObjectLookup(Generic[T]):
    """Objects of a table by key; use as a context manager, so that a command is waited for.

    An archive is read only as far as needed. The values that were read are kept, unless the options
    say that nobody will ask for them again. With `o` each key is asked for once. With `s` and `cs`
    the archive is sorted, and keys are asked for in that order. A sorted archive is not read to its
    end for a key that it lacks.
    """

    def __init__(self, rspecifier: str, decode: Callable[[Reader], T]) -> None:
        """Opens the table.

        Args:
            rspecifier: `ark:FILE`, `scp:FILE`, `ark,s,cs:COMMAND |`, ...
            decode: Takes one object from a reader; the object must not refer to the reader's data.

        Raises:
            TableError: the table cannot be opened, or its script file has a key twice.
        """
        self._specifier = specifier = Specifier.to_read(rspecifier)
        self._decode = decode
        self._is_sorted = "s" in specifier.options
        self._is_asked_in_order = {"s", "cs"} <= specifier.options
        self._known: dict[str, T] = {}
        self._last = self._asked = self._damage = ""
        self._script: dict[str, entries.ScriptLine] = {}
        self._is_closed = False
        self._source = contextlib.ExitStack()
        if specifier.is_script:
            for line in entries.read_script(specifier):
                if line.key in self._script:
                    raise TableError(f"{line.place}: the key '{line.key}' comes twice")
                self._script[line.key] = line
        else:
            stream = self._source.enter_context(opened(specifier.target))
            self._entries = entries.read_archive(stream, specifier.target, decode)

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
            if not self._specifier.is_script:
                return self._found_in_archive(key)
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
        self._known.pop(key, None)
        return value

    def _found_in_archive(self, key: str) -> T | None:
        if self._is_asked_in_order:
            if key < self._asked:
                raise self._fault(
                    f"'{key}' is asked for after '{self._asked}', out of the order that the option "
                    "cs promises"
                )
            self._asked = key
            self._known = {other: value for other, value in self._known.items() if other >= key}
        while key not in self._known and not (self._is_sorted and key < self._last):
            if not self._read_on():
                return None
        is_asked_once = "o" in self._specifier.options
        return self._known.pop(key, None) if is_asked_once else self._known.get(key)

    def _read_on(self) -> bool:
        """Reads the next value of the archive; returns whether there was one.

        Raises:
            TableError: the archive is damaged, or its command has failed, or a key comes again, or
                out of order.
        """
        if self._damage:
            if self._specifier.is_permissive:
                return False
            raise TableError(self._damage)
        try:
            entry = next(self._entries, None)
            if entry is None:
                self._source.close()
                return False
            if self._is_sorted and entry.key < self._last:
                raise self._fault(
                    f"'{entry.key}' comes after '{self._last}', out of the order that the option s "
                    "promises"
                )
            if entry.key in self._known or (self._is_sorted and entry.key == self._last):
                raise self._fault(f"the key '{entry.key}' comes twice")
        except BaseException as error:  # also Ctrl-C: the value that was being read is lost
            is_known = isinstance(error, Nnet3Error)
            self._damage = str(error if is_known else self._fault(f"reading ended: {error!r}"))
            raise
        self._last = entry.key
        if not (self._is_asked_in_order and entry.key < self._asked):
            self._known[entry.key] = entry.value
        return True

    def _fault(self, what: str) -> TableError:
        return TableError(f"archive '{self._specifier.target}': {what}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        """Closes the table; raises a TableError if a command failed."""
        self._is_closed = True
        self._source.__exit__(*raised)


class MatrixLookup(ObjectLookup[entries.FloatArray]):
    """Matrices of a table by key."""

    def __init__(self, rspecifier: str) -> None:
        """Opens the table; see `ObjectLookup`."""
        super().__init__(rspecifier, entries.matrix)


class VectorLookup(ObjectLookup[entries.FloatArray]):
    """Vectors of a table by key."""

    def __init__(self, rspecifier: str) -> None:
        """Opens the table; see `ObjectLookup`."""
        super().__init__(rspecifier, entries.vector)
