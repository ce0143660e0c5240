"""No tool writes over a file that it reads, whichever way the file was named.

Readers and writers know nothing of this. Python says of each file that it opens, and
nnet3_descriptors of each that it replaces, by audit events (PEP 578).
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator

import nnet3_tables
from nnet3_descriptors.files import REPLACES

_MOST_KNOWN = 10_000
"""So many files that a tool reads before it writes are remembered; what it writes later, always."""

_Path = str | bytes | os.PathLike[str]

_File = tuple[int, int]
"""The device and the number of a file."""


class _Guard:
    """What a tool reads and writes.

    Args:
        free: Files that it may replace though it reads them.
        folder: A folder whose files it keeps up to date, if any.
    """

    def __init__(self, free: Iterable[str], folder: str) -> None:
        self._free = {found for path in free if (found := _file(path))}
        self._folder = folder and os.path.join(os.path.realpath(folder), "")
        self._read: dict[_File, _Path] = {}
        self._replaced: set[_File] = set()
        self._written: set[str] = set()

    def reads(self, path: _Path) -> None:
        """Notes a file that is opened for reading."""
        if len(self._read) < _MOST_KNOWN or self._replaced:
            found = _file(path)
            if found and (len(self._read) < _MOST_KNOWN or found in self._replaced):
                self._read[found] = path

    def replaces(self, path: str, *, is_whole: bool) -> None:
        """Raises a TableError if the tool reads, or has written, the file that it replaces."""
        if self._folder and path.startswith(self._folder):
            return
        if not self._folder and not is_whole and path in self._written:
            raise nnet3_tables.TableError(f"cannot write '{path}': it is written already")
        found = _file(path)
        # A file that was read and is gone may have left its number to this one.
        if found in self._read and found not in self._free and found == _file(self._read[found]):
            raise nnet3_tables.TableError(f"cannot write '{path}': it is read at the same time")
        if found:
            self._replaced.add(found)
        self._written.add(path)


_guards: list[_Guard] = []
_hooks: list[bool] = []


@contextlib.contextmanager
def guarded(read: Iterable[str], free: Iterable[str], folder: str) -> Iterator[None]:
    """A context in which files that are read are not replaced, and none is written twice.

    Args:
        read: Files that were read before.
        free: Files that may be replaced, such as a model that the tool changes.
        folder: A folder whose files the tool reads and replaces; "" for none.
    """
    if not _hooks:
        _hooks.append(True)
        sys.addaudithook(_hear)
    guard = _Guard(free, folder)
    for path in read:
        guard.reads(path)
    _guards.append(guard)
    try:
        yield
    finally:
        _guards.pop()


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    """Hears of all that Python audits; a hook stays until the process ends."""
    if not _guards:
        return
    if event == "open":
        path, _, flags = arguments
        is_read = isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_RDWR)
        if is_read and isinstance(path, str | bytes | os.PathLike):
            _guards[-1].reads(path)
    elif event == REPLACES:
        target, is_whole = arguments
        _guards[-1].replaces(str(target), is_whole=bool(is_whole))


def _file(path: _Path) -> _File | None:
    """What tells a regular file from others, whatever its name; None if there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
