"""Memory of the processor in the place of a device's, and which bytes of it have been written."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_runtime_cuda import DeviceError, DeviceMemoryError
from nnet3_runtime_cuda.cuda.platform import ALIGNMENT

Bytes = npt.NDArray[np.uint8]

BY_DEVICE, BY_HOST = np.uint8(1), np.uint8(2)
"""Marks of a byte that kernels or products have written, and of one that the host has set."""


@attrs.frozen(eq=False)
class Stretch:
    """Memory that was allocated.

    Attributes:
        address: A multiple of ALIGNMENT.
        nbytes: Its size.
        written: (nbytes,) the marks of each byte; 0 if nothing has written it.
        array: Keeps the memory.
    """

    address: int
    nbytes: int
    written: Bytes
    array: Bytes

    @property
    def end(self) -> int:
        """The address behind it."""
        return self.address + self.nbytes


class HostMemory:
    """Allocates memory, and remembers for each byte whether anything has written it.

    Attributes:
        stretches: The memory that is allocated, in order; a new tuple whenever that changes.
    """

    def __init__(self, limit: int) -> None:
        """Memory of so many bytes."""
        self.stretches: tuple[Stretch, ...] = ()
        self._limit = limit

    @property
    def free_bytes(self) -> int:
        """The bytes that can be allocated."""
        return self._limit - sum(stretch.nbytes for stretch in self.stretches)

    def allocate(self, nbytes: int) -> int:
        """The address of that much memory, which nothing has written.

        Raises:
            DeviceMemoryError: there is not enough.
        """
        if nbytes > self.free_bytes:
            raise DeviceMemoryError(
                f"expected {nbytes} bytes of memory, found {self.free_bytes} free"
            )
        # What nobody has written must not look like a number.
        array = np.full(nbytes + ALIGNMENT, 0xFF, dtype=np.uint8)
        address = -(-array.ctypes.data // ALIGNMENT) * ALIGNMENT
        added = Stretch(address, nbytes, np.zeros(nbytes, dtype=np.uint8), array)
        self.stretches = tuple(sorted((*self.stretches, added), key=lambda each: each.address))
        return address

    def free(self, address: int) -> None:
        """Gives memory back."""
        self.stretches = tuple(each for each in self.stretches if each.address != address)

    def forget(self) -> None:
        """Takes all marks BY_DEVICE away."""
        for stretch in self.stretches:
            stretch.written[...] &= BY_HOST

    def at(self, address: int) -> Stretch | None:
        """The memory that an address is in, if any."""
        number = bisect.bisect(self.stretches, address, key=lambda each: each.address) - 1
        if number < 0 or address >= self.stretches[number].end:
            return None
        return self.stretches[number]

    def written(self, address: int, shape: Sequence[int], strides: Sequence[int]) -> Bytes:
        """The marks of the bytes of an array, a view.

        Args:
            address: Of the first byte.
            shape: Of the array of bytes.
            strides: In bytes, none negative.

        Raises:
            DeviceError: part of the array is not in memory that was allocated.
        """
        stretch = self.at(address)
        last = address + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if stretch is None or last >= stretch.end:
            raise DeviceError(f"an access outside of memory, from {address:#x} to {last:#x}")
        first = stretch.written[address - stretch.address :]
        return np.lib.stride_tricks.as_strided(first, shape, strides)
