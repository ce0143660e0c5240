"""Values that can be written as bytes and files, and read again."""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

from nnet3_descriptors.files.atomic_write import write_atomically
from nnet3_descriptors.files.opening import read_file


class Serialized:
    """Base of the attrs classes whose instances are exchanged between processes.

    The README of the package that owns the class describes the content of the container.
    """

    __slots__ = ()

    FORMAT: ClassVar[str]
    """Name of the format, such as "nnet3.nnet"."""
    VERSION: ClassVar[int]
    """Version of the format; raised when older readers would misread a file."""
    UPGRADES: ClassVar[Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]] = MappingProxyType(
        {}
    )
    """For each older version that can be read, the function that turns its content into that of the
    next."""

    def to_bytes(self) -> bytes:
        """Returns the value as a safetensors container; equal values give equal bytes."""
        from nnet3_descriptors.serialization import to_container  # takes a while to import

        return to_container(self, format=self.FORMAT, version=self.VERSION)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Returns the inverse of `to_bytes`.

        Raises:
            SerializationError: The bytes are not such a container, or hold no valid value.
        """
        from nnet3_descriptors.serialization import from_container

        return from_container(
            data, cls, format=cls.FORMAT, version=cls.VERSION, upgrades=cls.UPGRADES
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `to_bytes()` to a file, which is replaced at once or not at all.

        Raises:
            FileError: The file cannot be written.
        """
        write_atomically(path, [self.to_bytes()])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a file that `save` has written.

        Raises:
            FileError: The file cannot be read; for a missing file it is a FileNotFoundError.
            SerializationError: It holds no such value; see `from_bytes`.
        """
        return cls.from_bytes(read_file(path))
