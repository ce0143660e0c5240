"""Writing a file so that it is never seen half-written."""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], chunks: Iterable[bytes | memoryview]) -> None:
    """Writes a file, or leaves what was there.

    The bytes go to a temporary file in the same folder, which takes the place of `path` when it is
    on disk. What is no regular file, such as a pipe or terminal, is written to directly.

    Args:
        path: Where the file is wanted.
        chunks: Its content, in pieces. They may be views of the file that is replaced.

    Raises:
        OSError: It could not be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            file.writelines(chunks)
        return
    temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    try:
        with temporary.open("xb") as file:
            file.writelines(chunks)
            file.flush()
            if target.exists():
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Waits until the folder's entries are on disk, where the system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
