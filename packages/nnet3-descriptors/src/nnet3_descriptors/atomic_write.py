"""Writing a file so that it is never seen half-written."""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_SHOWN_NAME: Final = 40
"""Characters of a file's name that the temporary file beside it shows."""


def write_atomically(path: str | os.PathLike[str], chunks: Iterable[bytes | memoryview]) -> None:
    """Writes a file, or leaves what was there.

    The bytes go to a temporary file in the same folder, which takes the place of `path` when it is
    on disk. What is no regular file, such as a pipe or terminal, is written to directly.

    Args:
        path: Where the file is wanted.
        chunks: Its content, in pieces. They may be views of the file that is replaced.

    Raises:
        OSError: It could not be written; names `path`.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        try:
            with open(path, "wb") as file:
                file.writelines(chunks)
        except OSError as error:
            raise _named(error, path) from error
        return
    target = Path(os.path.realpath(path))  # a link stays, and what it refers to is replaced
    # Cut, because folders limit the length of names.
    temporary = target.with_name(f".{target.name[:_SHOWN_NAME]}.{os.urandom(4).hex()}")
    try:
        with temporary.open("xb") as file:
            file.writelines(chunks)
            file.flush()
            if target.exists():
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise _named(error, path) from error
        raise
    _sync_folder(target.parent)


def _named(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """The error with the name of what is written: it has that of the temporary file, or none."""
    return OSError(error.errno, error.strerror, os.fspath(path))


def _sync_folder(folder: Path) -> None:
    """Waits until the folder's entries are on disk, where the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
