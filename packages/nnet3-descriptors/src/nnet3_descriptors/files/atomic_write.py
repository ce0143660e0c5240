"""Writing a file so that no reader sees it half-written: all files of these packages are.

Every writer has a temporary file of its own, in the folder of its target, which takes the target's
place when it is whole and on disk. A writer that is killed leaves it behind.

- `.NAME.MACHINE.RANDOM.nnet3-tmp` is of no use; the next writer of the same name removes it. A lock
  (`flock`) shows whether the writer of a temporary file still lives: the system removes the lock
  with the process. Machines that share a folder may not see each other's locks: so the name says
  which machine wrote the file, and a file of another machine must also be old.
- `NAME.RANDOM.incomplete` is a table of which a part can be read. It also stays after an error, and
  only its owner removes it.
"""

import contextlib
import os
import re
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
REPLACES: Final = "nnet3.replace"
"""The audit event (`sys.audit`) before a file is replaced. Its arguments are the path, and whether
the new file is whole: there are two events for each file. A hook that raises an error keeps the old
file."""

_SUFFIX_OF_PART: Final = ".incomplete"

_LONGEST_NAME: Final = 255
"""The most bytes of a file's name on the usual systems."""

_OPEN_FILE: Final = re.compile(r"(?:/dev|/proc/self)/fd/(\d+)")
"""The name of a file that this process has open; `/dev/stdout` is a link to one."""

_MOST_LINKS: Final = 40

LONGEST_PAUSE: Final = 24 * 3600.0
"""Seconds after its last write, after which a file of another machine counts as abandoned."""


def write_atomically(path: str | os.PathLike[str], chunks: Iterable[bytes | memoryview]) -> None:
    """Writes a file, or leaves the old one; see `new_file`.

    Args:
        path: The file to write.
        chunks: Its content, in pieces. They may be views of the file that is replaced.

    Raises:
        FileError: It could not be written; names `path`.
    """
    check_path(path, "write")
    try:
        with new_file(path) as file:
            file.writelines(chunks)
    except OSError as error:
        raise file_error(error, "write", path) from error


@contextlib.contextmanager
def new_file(path: str | os.PathLike[str], *, keep_part: bool = False) -> Iterator[IO[bytes]]:
    """Gives a temporary file to write to, which at the end takes the place of a file.

    If an error is raised within, the old file stays, and the temporary file is removed. A path that
    is not a regular file, such as a pipe or terminal, is written to directly.

    Args:
        path: The file; of a link, the file that it refers to is replaced.
        keep_part: Whether a part of the content is of use, and stays after an error.

    Raises:
        OSError: It could not be written.
    """
    target = file_to_replace(path)
    if target is None:
        opened = _number_of_open_file(path)
        with open(path if opened is None else os.dup(opened), "wb") as stream:
            yield stream
        return
    sys.audit(REPLACES, target, False)
    with contextlib.suppress(FileNotFoundError):
        os.close(os.open(target, os.O_WRONLY))  # a file that may not be changed is not replaced
    if not keep_part:
        remove_left_behind(target)
    file, temporary = _open_temporary(target, is_part=keep_part)
    try:
        # Closed after the file is in place: as long as it is locked, nobody removes it.
        with file:
            yield file
            file.flush()
            if mode := _mode(target):
                os.chmod(temporary, stat.S_IMODE(mode))
            os.fsync(file.fileno())
            sys.audit(REPLACES, target, True)
            if _LOCKS:
                os.replace(temporary, target)
        if not _LOCKS:
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            if not (keep_part and os.path.getsize(temporary)):
                os.remove(temporary)
        raise
    _sync_folder(os.path.dirname(target))


def file_to_replace(path: str | os.PathLike[str]) -> str | None:
    """Returns the file that a new file of this path replaces, if it is there.

    Of a link it is the file that the link refers to. None if the path is written to directly: if it
    is a pipe, a terminal or a folder (also by a slash at its end), or the name of a file that this
    process has open.
    """
    target, mode = os.path.realpath(path), _mode(path)
    is_special = not os.path.basename(path) or (mode is not None and not stat.S_ISREG(mode))
    return None if is_special or _number_of_open_file(path) is not None else target


def _mode(path: str | os.PathLike[str]) -> int | None:
    """The kind and permissions of a file; None if there is none.

    It is asked for once: another writer may remove the file after each question.
    """
    with contextlib.suppress(OSError, ValueError):
        return os.stat(path).st_mode
    return None


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[str]:
    """Gives a temporary folder to fill, which at the end gets the name of a folder to make.

    If an error is raised within, the temporary folder is removed.

    Raises:
        OSError: It could not be made; or there is such a folder, and it is not empty.
    """
    target = os.path.realpath(path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    remove_left_behind(target)
    with contextlib.ExitStack() as lock:
        temporary = _locked_folder(target, lock)
        try:
            yield temporary
            os.rename(temporary, target)
        except BaseException:
            _remove_tree(temporary)
            raise
    _sync_folder(os.path.dirname(target))


def remove_folder(path: str | os.PathLike[str]) -> None:
    """Removes a folder: nobody sees a part of it.

    Raises:
        OSError: It could not be removed.
    """
    target = os.path.realpath(path)
    temporary = _temporary_name(target)
    os.rename(target, temporary)
    _remove_tree(temporary)  # what stays has the name of what is left behind


def _locked_folder(target: str, lock: contextlib.ExitStack) -> str:
    """Returns a new folder beside another one, which is locked until `lock` is closed."""
    while True:
        temporary = _temporary_name(target)
        os.mkdir(temporary)
        with contextlib.suppress(FileNotFoundError):
            lock.enter_context(locked(temporary))
            if os.path.isdir(temporary):
                return temporary
        lock.close()  # another writer took it for one left behind, before it was locked


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """A context of a folder in which threads and processes take turns, if the system can do that.

    Raises:
        OSError: There is no such folder.
    """
    if not _LOCKS:
        yield
        return
    descriptor = os.open(folder or os.curdir, os.O_RDONLY)
    try:
        _lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def _number_of_open_file(path: str | os.PathLike[str]) -> int | None:
    """The number of a file that this process has open, if a path names one, else None.

    What has been written to such a file before must stay, and its name may be another file's.
    """
    name = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        if found := _OPEN_FILE.fullmatch(name):
            return int(found[1])
        if not os.path.islink(name):
            break
        name = os.path.normpath(os.path.join(os.path.dirname(name), os.readlink(name)))
    return None


def _open_temporary(target: str, *, is_part: bool) -> tuple[IO[bytes], str]:
    """Returns a new file beside another one, locked, and its path."""
    while True:
        temporary = _name_of_part(target) if is_part else _temporary_name(target)
        file = open(temporary, "xb")  # noqa: SIM115  (the caller closes it)
        try:
            _lock(file.fileno(), wait=True)
            if os.path.exists(temporary):
                return file, temporary
        except BaseException:
            file.close()
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
        file.close()  # another writer took it for one left behind, before it was locked


def _name_of_part(target: str) -> str:
    folder, name = os.path.split(target)
    end = f".{os.urandom(4).hex()}{_SUFFIX_OF_PART}"
    while len(os.fsencode(name + end)) > _LONGEST_NAME:
        name = name[:-1]
    return os.path.join(folder, name + end)


def _temporary_name(target: str) -> str:
    # Cut, because folders limit the length of names.
    name = f"{_prefix(target)}{_machine()}.{os.urandom(4).hex()}{_SUFFIX}"
    return os.path.join(os.path.dirname(target), name)


def _prefix(target: str) -> str:
    return f".{os.path.basename(target)[:_SHOWN_NAME]}."


def _machine() -> str:
    """Returns a name that tells this machine from others that see the same folder."""
    name = os.uname().nodename if hasattr(os, "uname") else ""
    return f"{zlib.crc32(name.encode(errors='replace')):08x}"


def remove_left_behind(target: str) -> None:
    """Removes temporary files and folders of writers of a file or folder that were killed."""
    prefix = _prefix(target)
    with contextlib.suppress(OSError), os.scandir(os.path.dirname(target)) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX):
                machine = entry.name[len(prefix) : -len(_SUFFIX)].partition(".")[0]
                with contextlib.suppress(OSError):
                    _remove_unless_used(entry.path, is_own=machine == _machine())


def _remove_unless_used(temporary: str, *, is_own: bool) -> None:
    """Removes a temporary file or folder if no process writes to it.

    Args:
        temporary: The file or folder.
        is_own: Whether it was made on this machine.
    """
    if not is_own and time.time() - os.stat(temporary).st_mtime < LONGEST_PAUSE:
        return
    # A file is opened for writing, as some systems ask for to lock it, and not changed.
    is_folder = os.path.isdir(temporary)
    descriptor = os.open(temporary, os.O_RDONLY if is_folder else os.O_WRONLY)
    try:
        if _lock(descriptor, wait=False):
            (_remove_tree if is_folder else os.remove)(temporary)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Locks a file or folder until it is closed.

    Args:
        descriptor: Its number, by which it is open.
        wait: Whether to wait for whoever has locked it.

    Returns:
        Whether it is locked now: not if another has locked it, or the file system has no locks.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
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


def _remove_tree(folder: str) -> None:
    """Removes a folder with all in it, as far as it can be removed."""
    import shutil  # with it come all kinds of compressed files, and few programs remove folders

    shutil.rmtree(folder, ignore_errors=True)
