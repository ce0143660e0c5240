"""Files opened and read, with errors of this package."""

import mmap
import os
import stat
from typing import IO, BinaryIO

from nnet3_descriptors.errors import check_path, file_error


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a file for reading bytes.

    Raises:
        FileError: It cannot be opened.
    """
    check_path(path, "read")
    try:
        return open(path, "rb")
    except OSError as error:
        raise file_error(error, "read", path) from error


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Returns the bytes of a file.

    Raises:
        FileError: It cannot be opened or read.
    """
    with open_file(path) as file:
        try:
            return file.read()
        except OSError as error:
            raise file_error(error, "read", path) from error


def mapped(file: IO[bytes]) -> memoryview | None:
    """Returns all bytes of a regular file as a map, or None if the file has to be read.

    A pipe or a device has no size. Files that the system makes during reading, such as those below
    /proc, report a size of 0 whatever they hold.

    Args:
        file: An open file that has a file descriptor.

    Raises:
        OSError: It cannot be mapped.
    """
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
        return None
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
