"""Memory of a device: its shadow on the host, the memory of a program, and the budget.

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
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from nnet3_computation.computation import N, NnetComputation

from nnet3_runtime_cuda.cuda.platform import ALIGNMENT, Platform, Properties
from nnet3_runtime_cuda.cuda.recorded import View
from nnet3_runtime_cuda.errors import DeviceMemoryError
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.scratch import Scratch

LARGEST_SCRATCH = 1 << 36
"""Bytes of reserved host addresses that stand for working memory; it uses the first of them."""

RING, SMALL = 1 << 20, 1 << 15
"""Bytes of the ring for small arrays, and the most bytes of a small array."""

_NO_RESERVE = 0x4000
"""MAP_NORESERVE of Linux, which the module mmap lacks before Python 3.13."""

_ADDRESSES = itertools.count(1 << 60, 1 << 48)
"""Addresses that no process can have: each reservation has a stretch of them."""


# ---- shadows ----


class _Unreadable(np.ndarray[Any, Any]):
    """An array without memory, and its slices: it is printed, but no ufunc computes with it."""

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
    # NumPy's array interface, for host addresses without memory behind them.
    interface = {"version": 3, "shape": (nbytes,), "typestr": "|u1"}
    interface["data"] = next(_ADDRESSES), False
    there = SimpleNamespace(__array_interface__=interface)
    return np.asarray(there).view(_Unreadable)


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


class Region:
    """A stretch of memory.

    Attributes:
        array: The array that keeps the shadow alive, (nbytes,) uint8.
        shadow: Its address on the host.
        device: Its address on the device; 0 before it has one.
        nbytes: Its size.
    """

    def __init__(self, array: Array, device: int = 0) -> None:
        self.array, self.device = array, device
        self.shadow, self.nbytes = _pointer(array), array.nbytes


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
        region = self.insert(Region(memory, self.allocate(memory.nbytes)))
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
                self.platform.download(self.address_of(array), array)

    def push(self, arrays: Iterable[Array]) -> None:
        """Copies contiguous arrays of the shadow to the device, if they are there."""
        for array in arrays:
            if array.size and self.find(array) is not None:
                self.platform.upload(self.address_of(array), array)

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


class ProgramMemory(ShadowMemory):
    """Matrices, working memory and workspace of a program, beside the memory of its network.

    Arrays that hold data (parameters, tables, statistics) are adopted by the network's memory, as
    other programs use them too. Only `commit` allocates reserved memory. So the need of a program
    is known before it takes any.
    """

    def __init__(self, network: ShadowMemory) -> None:
        """Memory for a program with a network whose memory is `network`."""
        super().__init__(network.platform)
        self._network = network
        self._planned: list[tuple[Region, bool]] = []

    def place(self, memory: Array, *, zeroed: bool = False) -> Region:
        """Gives host memory, (bytes,) uint8, a region that has no address on the device yet."""
        region = Region(memory)
        self._planned.append((region, zeroed))
        return self.insert(region)

    def adopt(self, array: Array) -> None:
        """Makes sure that an array is on the device, with its data."""
        if self.find(array) is None:
            self._network.adopt(array)

    def address(self, pointer: int) -> int:
        """The address on the device for an address of the shadow."""
        region = self.find_address(pointer)
        if region is None:
            return self._network.address(pointer)
        assert region.device, "memory has addresses once it is committed"
        return region.device + pointer - region.shadow

    def commit(self, computation: NnetComputation | None = None) -> None:
        """Allocates all reserved memory, in one piece.

        Args:
            computation: The computation, so that an error can name the minibatch that would fit.

        Raises:
            DeviceMemoryError: there is not enough memory; nothing is allocated then.
        """
        size = sum(_padded(region.nbytes) for region, _ in self._planned)
        if size == 0:
            return
        if computation is not None:
            padding = ALIGNMENT * len(self._planned)
            check_fits(size, self.platform.properties, computation, fixed_bytes=padding)
        at = self.allocate(size)
        for region, zeroed in self._planned:
            region.device = at
            if zeroed:
                self.platform.clear(at, region.nbytes)
            at += _padded(region.nbytes)
        self._planned = []


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


# ---- working memory ----


class DeviceScratch(Scratch):
    """Working memory of commands, placed on the device when its size is known.

    Small arrays, such as sums of columns, take turns in a separate ring. If neighbouring commands
    used the same memory for different arrays, their operations could not share a kernel.
    """

    def __init__(self) -> None:
        super().__init__()
        # The ring, followed by the memory for all other arrays.
        self._memory = reserved(LARGEST_SCRATCH)
        self._blocks = [self._memory[RING:]]
        self._next_in_ring = 0
        self.begin()

    def begin(self) -> None:
        """Starts a new command: frees all arrays, and forgets lent memory."""
        super().begin()
        self._left_in_ring = RING

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An uninitialised array that keeps its contents until the command has run."""
        kind = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        start = self._place_in_ring(-(-nbytes // 64) * 64) if nbytes <= SMALL else None
        if start is None:
            array = super().take(shape, kind)
            if self.mark[0] == len(self._lent):
                self.nbytes = max(self.nbytes, RING + self.mark[1])
            return array
        self.nbytes = max(self.nbytes, start + nbytes)
        small: Array = self._memory[start : start + nbytes].view(kind).reshape(shape)
        return small

    def _place_in_ring(self, size: int) -> int | None:
        """The place of the next `size` bytes of the ring; None if the command has used it up."""
        start, skipped = self._next_in_ring, 0
        if start + size > RING:
            # Nothing is skipped if the arrays so far end where the ring ends.
            start, skipped = 0, RING - start
        if size + skipped > self._left_in_ring:
            return None
        self._left_in_ring -= size + skipped
        self._next_in_ring = start + size
        return start

    def place(self, memory: ShadowMemory) -> None:
        """Allocates the used part on the device."""
        if self.nbytes:
            memory.place(self._memory[: self.nbytes])

    def contains(self, view: View) -> bool:
        """Whether a view lies in this memory."""
        start: int = self._memory.__array_interface__["data"][0]
        return start <= view.address < start + LARGEST_SCRATCH


# ---- the budget ----


def minibatch_size(computation: NnetComputation) -> int | None:
    """The number of sequences of a computation; None if it is not known.

    The number is known unless the compiler's option `output_debug_info` was off.
    """
    largest = 0
    for info in computation.matrix_debug_info:
        distinct = len(info.sequences) or len(np.unique(info.pattern[:, N]))
        largest = max(largest, distinct)
    return largest or None


def check_fits(
    needed_bytes: int, properties: Properties, computation: NnetComputation, *, fixed_bytes: int = 0
) -> None:
    """Checks that there is memory for a computation, before any of it is taken.

    The need of a computation is proportional to its number of sequences, except for some fixed
    bytes.

    Args:
        needed_bytes: For matrices and working memory.
        fixed_bytes: The most bytes of it that do not depend on the number of sequences.
        properties: Those of the device, with its free memory.
        computation: The computation.

    Raises:
        DeviceMemoryError: there is not enough; the message names the bytes needed, the free bytes,
            and the largest minibatch that would fit.
    """
    free = properties.free_bytes
    if needed_bytes <= free:
        return
    raise DeviceMemoryError(
        f"the computation needs {needed_bytes:,} bytes of memory on {properties.name}, of which "
        f"{free:,} bytes are free; "
        f"{_what_would_fit(needed_bytes - fixed_bytes, max(free - fixed_bytes, 0), computation)}"
    )


def _what_would_fit(needed_bytes: int, free_bytes: int, computation: NnetComputation) -> str:
    size = minibatch_size(computation)
    if size is None:
        return f"a minibatch {free_bytes / needed_bytes:.3f} times as large would fit"
    fitting = size * free_bytes // needed_bytes
    if fitting == 0:
        return f"not one sequence of the {size} would fit"
    return f"a minibatch of {fitting} instead of {size} would fit"
