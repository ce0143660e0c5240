"""A platform that runs nothing: it counts launches, and stores the source of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
from nnet3_runtime_cuda.cuda.platform import (
    ALIGNMENT,
    Call,
    Gemm,
    Properties,
    check_launch,
)


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

    def capture(self, calls: Sequence[Call]) -> Call:
        """Nothing."""
        return _nothing

    def synchronize(self) -> None:
        """Nothing."""
