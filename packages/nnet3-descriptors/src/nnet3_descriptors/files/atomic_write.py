"""Writing a file so that no reader sees it half-written.

A writer that is killed leaves its temporary file behind. The next writer of the same name removes
it. A lock (`flock`) shows whether the writer of a temporary file still lives: the system removes
the lock with the process. Machines that share a folder may not see each other's locks: so the name
of a temporary file says which machine wrote it, and a file of another machine must also be old.
"""

import contextlib
import os
import stat
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Final

from nnet3_descriptors.errors import check_path, file_error

_LOCKS: Final = sys.platform != "win32"
"""Whether files can be locked; where they cannot, open files cannot be removed either."""

if sys.platform != "win32":
    import fcntl

_SHOWN_NAME: Final = 40
"""Characters of a file's name that the temporary file beside it shows."""

_SUFFIX: Final = ".nnet3-tmp"

LONGEST_PAUSE: Final = 24 * 3600.0
"""Seconds after its last write, after which a file of another machine counts as abandoned."""


def write_atomically(path: str | os.PathLike[str], chunks: Iterable[bytes | memoryview]) -> None:
    """Writes a file, or leaves the old one.

    The bytes go to a temporary file in the same folder, which takes the place of `path` when it is
    on disk. Temporary files that killed writers of this file left there are removed. A path that is
    not a regular file, such as a pipe or terminal, is written to directly.

    Args:
        path: The file to write.
        chunks: Its content, in pieces. They may be views of the file that is replaced.

    Raises:
        FileError: It could not be written; names `path`.
    """
    check_path(path, "write")
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as file:
                file.writelines(chunks)
            return
        with replacing(path) as file:
            file.writelines(chunks)
    except OSError as error:
        raise file_error(error, "write", path) from error


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Gives a temporary file to write to, which at the end takes the place of a file.

    If an error is raised within, the old file stays, and the temporary file is removed.

    Args:
        path: A regular file, a link to one, or nothing yet.

    Raises:
        OSError: It could not be written.
    """
    target = os.path.realpath(path)  # a link stays, and what it refers to is replaced
    remove_left_behind(target)
    file, temporary = _open_temporary(target)
    try:
        # Closed after the file is in place: as long as it is locked, nobody removes it.
        with file:
            yield file
            file.flush()
            if os.path.exists(target):
                os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            os.fsync(file.fileno())
            if _LOCKS:
                os.replace(temporary, target)
        if not _LOCKS:
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise
    _sync_folder(os.path.dirname(target))


def _open_temporary(target: str) -> tuple[IO[bytes], str]:
    """Returns a new file beside another one, locked, and its path."""
    while True:
        # Cut, because folders limit the length of names.
        name = f"{_prefix(target)}{_machine()}.{os.urandom(4).hex()}{_SUFFIX}"
        temporary = os.path.join(os.path.dirname(target), name)
        file = open(temporary, "xb")  # noqa: SIM115  (the caller closes it)
        try:
            _lock(file, wait=True)
            if os.path.exists(temporary):
                return file, temporary
        except BaseException:
            file.close()
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
        file.close()  # another writer took it for one left behind, before it was locked


def _prefix(target: str) -> str:
    return f".{os.path.basename(target)[:_SHOWN_NAME]}."


def _machine() -> str:
    """Returns a name that tells this machine from others that see the same folder."""
    name = os.uname().nodename if hasattr(os, "uname") else ""
    return f"{zlib.crc32(name.encode(errors='replace')):08x}"


def remove_left_behind(target: str) -> None:
    """Removes temporary files of writers of a file that were killed."""
    prefix = _prefix(target)
    with contextlib.suppress(OSError), os.scandir(os.path.dirname(target)) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX):
                machine = entry.name[len(prefix) : -len(_SUFFIX)].partition(".")[0]
                with contextlib.suppress(OSError):
                    _remove_unless_used(entry.path, is_own=machine == _machine())


def _remove_unless_used(temporary: str, *, is_own: bool) -> None:
    """Removes a temporary file if no process writes to it.

    Args:
        temporary: The file.
        is_own: Whether it was made on this machine.
    """
    if not is_own and time.time() - os.stat(temporary).st_mtime < LONGEST_PAUSE:
        return
    # Append: opened for writing, as some systems ask for to lock it, and not changed.
    with open(temporary, "ab") as file:
        if _lock(file, wait=False):
            os.remove(temporary)


def _lock(file: IO[bytes], *, wait: bool) -> bool:
    """Locks a file until it is closed.

    Args:
        file: The file, open for writing.
        wait: Whether to wait for whoever has locked it.

    Returns:
        Whether it is locked now: not if another has locked it, or the file system has no locks.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            return False
    return True


def _sync_folder(folder: str) -> None:
    """Waits until the folder's entries are on disk, where the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
