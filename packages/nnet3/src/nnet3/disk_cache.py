"""A folder of files with results that later processes need not compute again.

Any number of processes may read and write it at once. An entry is written to a temporary file,
which then takes its place, so nobody reads half of one. It begins with a checksum of its key and
content; an entry with another checksum is as good as none. Nothing waits until it is on disk: what
a power failure damages, the checksum shows. Where nothing can be read or written, there is no
cache, and nobody is told but those who look at messages of level DEBUG.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import time
from typing import Final

from nnet3_computation import OptionError

VARIABLE: Final = "NNET3_CACHE_DIR"
"""The environment variable that names the folder; empty for no cache."""

MOST_BYTES: Final = 1 << 28
"""The most bytes of all entries, about: each process looks at them when it writes its first one,
and again after each sixteenth of that number."""

_LEAST_BYTES: Final = 4096
"""The least that counts for an entry: a block of the usual file systems."""

_ABANDONED: Final = 3600.0
"""Seconds after which a temporary file is one that a killed process has left behind."""

_MARK: Final = b"nnet3 cache 1\n"
_ENTRY, _TEMPORARY = ".nnet3-cache", ".nnet3-cache-tmp"


def folder_of(cache_dir: str | os.PathLike[str] | None) -> str | None:
    """The folder of the cache, or None if there is to be none.

    Args:
        cache_dir: The folder, or "" for none; None for what NNET3_CACHE_DIR says in the same way,
            or without this variable a folder among the caches of the user. A `~` in front is the
            home of the user.

    Raises:
        OptionError: It is no path.
    """
    if cache_dir is None:
        cache_dir = os.environ.get(VARIABLE)
        if cache_dir is None:
            return _folder_of_user()
    if not isinstance(cache_dir, str | os.PathLike):
        raise OptionError(f"cache_dir must be a path (got {cache_dir!r:.80})")
    path = os.path.expanduser(os.fsdecode(cache_dir))
    try:
        return os.path.abspath(path) if path else None
    except OSError:  # the current folder is gone
        return None


def _folder_of_user() -> str | None:
    """A folder where the system expects caches, or None if the user has no home."""
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    elif sys.platform == "darwin":
        caches = os.path.join(home, "Library", "Caches")
    else:
        caches = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(caches):  # which the specification says to ignore
            caches = os.path.join(home, ".cache")
    return os.path.join(caches, "nnet3") if os.path.isabs(caches) else None


@functools.cache
def disk_cache(folder: str) -> DiskCache:
    """The cache in a folder; the same object each time."""
    return DiskCache(folder)


class DiskCache:
    """Bytes by key, in the files of a folder."""

    def __init__(self, folder: str, most_bytes: int = MOST_BYTES) -> None:
        """Begins with what is there; the folder is made when something is written.

        Args:
            folder: The folder. Only files with the names of entries are touched.
            most_bytes: The most bytes of all entries; the ones that were used least recently are
                removed first. An entry of more than a quarter of it is not kept.
        """
        self._folder, self._most_bytes = folder, most_bytes
        self._can_write = True
        self._unseen: int | None = None  # bytes written since the folder was looked through

    def __repr__(self) -> str:
        """The folder."""
        return f"<DiskCache in '{self._folder}'>"

    def read(self, key: str) -> bytes | None:
        """Returns what was written for a key; None if there is nothing, or if it is damaged.

        Args:
            key: Hexadecimal digits.
        """
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size > self._most_bytes:
                    return None
                found = file.read()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:  # a ValueError is of a NUL in the path
            debug(f"cannot read {path}: {error}")
            return None
        head = len(_head(key, b""))
        data = found[head:]
        if found[:head] != _head(key, data):
            debug(f"{path} is damaged, or of another version")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of its last use
        return data

    def write(self, key: str, data: bytes) -> None:
        """Keeps bytes for a key, if that can be done; after a failure nothing more is written."""
        if not self._can_write or len(data) > self._most_bytes // 4:
            return
        try:
            self._write(key, data)
            self._make_room(len(data))
        except (OSError, ValueError) as error:
            self._can_write = False
            debug(f"nothing more is written to {self._folder}: {error}")

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, key + _ENTRY)

    def _write(self, key: str, data: bytes) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        # Processes of several machines may share the folder, so numbers of processes do not do.
        temporary = os.path.join(self._folder, os.urandom(16).hex() + _TEMPORARY)
        try:
            with open(temporary, "xb") as file:
                file.write(_head(key, data))
                file.write(data)
            os.replace(temporary, self._path(key))
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise

    def _make_room(self, written: int) -> None:
        """Removes entries until a sixteenth is free, if there are too many bytes.

        Args:
            written: Bytes that were written just now.
        """
        if self._unseen is not None:
            self._unseen += max(written, _LEAST_BYTES)
            if self._unseen < self._most_bytes // 16:
                return
        self._unseen = 0
        total, entries = 0, []
        with os.scandir(self._folder) as found:
            for each in found:
                if not each.name.endswith((_ENTRY, _TEMPORARY)):
                    continue
                with contextlib.suppress(OSError):  # another process may have removed it
                    status = each.stat(follow_symlinks=False)
                    if each.name.endswith(_ENTRY):
                        size = max(status.st_size, _LEAST_BYTES)
                        total += size
                        entries.append((status.st_mtime_ns, size, each.path))
                    elif time.time() - status.st_mtime > _ABANDONED:
                        os.remove(each.path)
        if total <= self._most_bytes:
            return
        for _, size, path in sorted(entries):
            with contextlib.suppress(OSError):
                os.remove(path)
            total -= size
            if total <= self._most_bytes - self._most_bytes // 16:
                break


def _head(key: str, data: bytes) -> bytes:
    """What stands before the content of an entry."""
    return _MARK + hashlib.sha256(key.encode() + b"\n" + data).digest()


def debug(message: str) -> None:
    """Says something about the cache to those who look at messages of this level."""
    import logging  # takes a while, and there seldom is something to say

    logging.getLogger("nnet3.cache").debug(message)
