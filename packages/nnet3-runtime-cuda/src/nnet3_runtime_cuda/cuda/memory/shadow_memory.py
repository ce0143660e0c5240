"""Shadow memory: host arrays that stand for stretches of device memory.

Lowering works on NumPy arrays that are reserved but never touched: they are sliced, not read. Each
array that is not a view of another is a region, with as much memory on the device; the address of a
view there is that of the region plus the distance in the shadow. Arrays that hold data (parameters,
index tables, constants) are ordinary ones. They become regions, and are uploaded, on first use.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import mmap
import sys
from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.cuda.platform.platform import Platform
from nnet3_runtime_cuda.operations import Array


@attrs.define(eq=False)
class Region:
    """A stretch of memory.

    Attributes:
        shadow: Its address on the host.
        device: Its address on the device; 0 before it has one.
        nbytes: Its size.
        array: The array that keeps the shadow alive, (nbytes,) uint8.
    """

    shadow: int
    device: int
    nbytes: int
    array: Array

    @classmethod
    def of(cls, memory: Array, device: int) -> Region:
        """The region of host memory, (bytes,) uint8."""
        return cls(_pointer(memory), device, memory.nbytes, memory)


class ShadowMemory:
    """The memory of a device as seen from the host.

    Attributes:
        platform: The platform of the memory.
        nbytes: The bytes that have been allocated on the device.
    """

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.nbytes = 0
        self._starts: list[int] = []
        self._regions: list[Region] = []
        self._allocated: list[int] = []

    def reserve(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array whose contents are on the device only, and undefined."""
        kind = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        memory = reserved(max(count * kind.itemsize, 1))
        self.place(memory)
        array: Array = memory[: count * kind.itemsize].view(kind).reshape(shape)
        return array

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array of zeros, whose shadow can hold data that `pull` downloads."""
        array: Array = np.zeros(shape, dtype=dtype)
        if array.size:
            self.place(array.reshape(-1).view(np.uint8), zeroed=True)
        return array

    def place(self, memory: Array, *, zeroed: bool = False) -> Region:
        """Gives a stretch of host memory, (bytes,) uint8, memory on the device."""
        region = self.insert(Region.of(memory, self.allocate(memory.nbytes)))
        if zeroed:
            self.platform.clear(region.device, region.nbytes)
        return region

    def allocate(self, nbytes: int) -> int:
        """Memory of the device, until `close`."""
        self._allocated.append(self.platform.allocate(nbytes))
        self.nbytes += nbytes
        return self._allocated[-1]

    def insert(self, region: Region) -> Region:
        """Remembers a region."""
        at = bisect.bisect(self._starts, region.shadow)
        self._starts.insert(at, region.shadow)
        self._regions.insert(at, region)
        return region

    def address(self, pointer: int) -> int:
        """The device address of an address of the shadow."""
        region = self.find_address(pointer)
        assert region is not None, "operations are on arrays that were adopted"
        return region.device + pointer - region.shadow

    def address_of(self, array: Array) -> int:
        """The device address of the first element of an array."""
        return self.address(_pointer(array))

    def adopt(self, array: Array) -> None:
        """Makes sure that an array, or its base, is on the device, with its data."""
        if array.size == 0 or self.find(array) is not None:
            return
        root = _root(array)
        memory = np.lib.stride_tricks.as_strided(root, (root.size,), (root.itemsize,))
        region = self.place(memory.view(np.uint8))
        self.platform.upload(region.device, region.array)

    def pull(self, arrays: Iterable[Array]) -> None:
        """Copies whole contiguous arrays from the device into their shadows."""
        for array in arrays:
            if array.size and self.find(array) is not None:
                self.platform.download(self.address(_pointer(array)), array)

    def push(self, arrays: Iterable[Array]) -> None:
        """Copies contiguous arrays of the shadow to the device, if they are there."""
        for array in arrays:
            if array.size and self.find(array) is not None:
                self.platform.upload(self.address(_pointer(array)), array)

    def close(self) -> None:
        """Gives the memory of the device back."""
        for address in self._allocated:
            self.platform.free(address)
        self._starts, self._regions, self._allocated, self.nbytes = [], [], [], 0

    def find(self, array: Array) -> Region | None:
        """The region that an array begins in, if this memory has it."""
        return self.find_address(_pointer(array))

    def find_address(self, pointer: int) -> Region | None:
        """The region of an address of the shadow, if this memory has it."""
        at = bisect.bisect(self._starts, pointer) - 1
        if at < 0:
            return None
        region = self._regions[at]
        return region if pointer < region.shadow + region.nbytes else None


_NO_RESERVE = 0x4000
"""MAP_NORESERVE of Linux, which the module mmap lacks before Python 3.13."""

_ADDRESSES = itertools.count(1 << 60, 1 << 48)
"""Addresses that no process can have: each reservation has a stretch of them."""


class _Reservation:
    """An object with NumPy's array interface for host addresses without memory behind them."""

    def __init__(self, nbytes: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (next(_ADDRESSES), False),
        }


class _Unreadable(np.ndarray[Any, Any]):
    """Such an array, and its slices: it can be printed, but no ufunc computes with it."""

    __array_ufunc__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.shape} {self.dtype} on a device>"

    __str__ = __repr__


def reserved(nbytes: int) -> Array:
    """(nbytes,) uint8 that can be sliced and reshaped, but is not to be read or written.

    The system would provide its pages on first access; if it reserves no pages, there are only
    addresses without memory.
    """
    if sys.platform == "linux":
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        with contextlib.suppress(OSError):
            return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), dtype=np.uint8)
    return np.asarray(_Reservation(nbytes)).view(_Unreadable)


def _pointer(array: Array) -> int:
    pointer: int = array.__array_interface__["data"][0]
    return pointer


def _root(array: Array) -> Array:
    """The array that holds the memory of a view; contiguous in some order."""
    root: Array = array
    base: Any = array
    while base is not None:
        if isinstance(base, np.ndarray):
            root = base
        base = getattr(base, "base", None)
    return root
