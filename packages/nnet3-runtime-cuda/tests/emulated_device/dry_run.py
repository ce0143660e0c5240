"""A platform that runs nothing: it counts launches, and stores the source of kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
from nnet3_runtime_cuda import DeviceError
from nnet3_runtime_cuda.cuda.platform import ALIGNMENT, Call, Gemm, Properties

LARGEST_GRID, LARGEST_BLOCK = ((1 << 31) - 1, 65535, 65535), (1024, 1024, 64)
"""Blocks of a grid and threads of a block that CUDA allows; at most 1024 threads in all."""

MOST_ARGUMENTS = 512
"""Pointers in the 4096 bytes of arguments that all devices and compilers allow."""


def check_launch(
    grid: tuple[int, int, int], block: tuple[int, int, int], arguments: Sequence[int]
) -> None:
    """Checks the limits of CUDA before a kernel is compiled or launched.

    Raises:
        DeviceError: a size is 0 or too large, or there are too many arguments.
    """
    grid_fits = all(1 <= n <= most for n, most in zip(grid, LARGEST_GRID, strict=True))
    block_fits = all(1 <= n <= most for n, most in zip(block, LARGEST_BLOCK, strict=True))
    if not (grid_fits and block_fits and math.prod(block) <= LARGEST_BLOCK[0]):
        raise DeviceError(f"expected a launch that CUDA allows, found grid {grid}, block {block}")
    if len(arguments) > MOST_ARGUMENTS:
        raise DeviceError(f"expected {MOST_ARGUMENTS} arguments at most, found {len(arguments)}")


def _nothing() -> None:
    pass


class DryRun:
    """Counts the calls of programs to a platform; see `Platform`.

    Attributes:
        sources: The source of each module.
        launches: Kernel launches bound so far.
        products: Matrix products bound so far.
    """

    def __init__(self, memory_limit: int = 1 << 50) -> None:
        """A device with so many bytes of memory, none of which exist."""
        self.sources: list[str] = []
        self.launches = 0
        self.products: list[Gemm] = []
        self._limit, self._used, self._next = memory_limit, 0, ALIGNMENT
        self._sizes: dict[int, int] = {}

    @property
    def properties(self) -> Properties:
        """A device of the given size."""
        free = self._limit - self._used
        return Properties(name="dry run", total_bytes=self._limit, free_bytes=free)

    def allocate(self, nbytes: int) -> int:
        """An address of nothing."""
        address = self._next
        self._next += -(-nbytes // ALIGNMENT) * ALIGNMENT
        self._used += nbytes
        self._sizes[address] = nbytes
        return address

    def free(self, address: int) -> None:
        """Gives it back."""
        self._used -= self._sizes.pop(address)

    def upload(self, address: int, array: npt.NDArray[Any]) -> None:
        """Nothing."""

    def download(self, address: int, array: npt.NDArray[Any]) -> None:
        """Leaves the array as it is."""

    def clear(self, address: int, nbytes: int) -> None:
        """Nothing."""

    def build(self, source: str, kernels: Sequence[str]) -> Mapping[str, object]:
        """Keeps the source."""
        self.sources.append(source)
        return {name: name for name in kernels}

    def launch(
        self,
        kernel: object,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[int],
    ) -> Call:
        """Counts a launch that CUDA would allow."""
        check_launch(grid, block, arguments)
        self.launches += 1
        return _nothing

    def workspace(self) -> object:
        """None is needed."""
        return None

    def gemm(self, product: Gemm, workspace: object = None) -> Call:
        """Keeps a product."""
        self.products.append(product)
        return _nothing

    def capture(
        self,
        calls: Sequence[Call],
        branches: Sequence[int] = (),
        waits: Sequence[Sequence[int]] = (),
    ) -> Call:
        """Nothing."""
        return _nothing

    def synchronize(self) -> None:
        """Nothing."""
