"""The protocol of a device: memory, kernels, matrix products, replay.

There are two platforms: CUDA through CuPy, and the processor, which builds the same kernel sources
with a C++ compiler, for tests without a GPU. `DeviceNnet(nnet, device=platform)` takes either of
them; the strings "cuda" and "cuda:1" stand for the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import numpy.typing as npt

Call = Callable[[], object]
"""An operation bound to all its operands. Calls run in the order in which they are made."""

ALIGNMENT = 256
"""Memory is allocated at multiples of this many bytes."""


@attrs.frozen(kw_only=True)
class Properties:
    """The properties of a device.

    Attributes:
        name: For messages: "NVIDIA H200", "host".
        compute_capability: (major, minor); (0, 0) for the processor.
        multiprocessors: Their number.
        total_bytes: Memory of the device.
        free_bytes: The bytes that can be allocated now.
    """

    name: str
    compute_capability: tuple[int, int] = (0, 0)
    multiprocessors: int = 1
    total_bytes: int
    free_bytes: int


@attrs.frozen(kw_only=True)
class Matrix:
    """A float32 matrix operand of a product, row by row in memory.

    Attributes:
        address: Of its first element.
        stride: Distance of rows in elements, at least their length.
        transposed: Whether the product uses the transpose of the matrix in memory.
        batch_stride: Distance in elements of the matrices of a batch; 0 if all use the same one.
    """

    address: int
    stride: int = attrs.field(validator=attrs.validators.ge(1))
    transposed: bool = False
    batch_stride: int = 0


@attrs.frozen(kw_only=True)
class Gemm:
    """out = activation(alpha a b + beta addend + bias), all float32, out: (rows, columns).

    Attributes:
        rows: Of out and of a.
        columns: Of out and of b.
        inner: Columns of a, rows of b; at least 1.
        a: (rows, inner) after its transposition.
        b: (inner, columns) after its transposition.
        out: Not transposed. Overlaps neither a nor b.
        alpha: Factor of the product.
        alpha_at: If not 0, the address of a float32 that is read when the product runs and takes
            the place of alpha; kernels before it may have written it.
        beta: 0 (the addend is not read, and may be undefined) or any factor.
        addend: The matrix that beta multiplies; None for out itself. Not transposed.
        bias: If not 0, the address of (columns,) that is added to each row.
        relu: Whether negative results become 0, as the last thing.
        batch: Number of products; each operand moves by its batch_stride from one to the next.
    """

    rows: int = attrs.field(validator=attrs.validators.ge(1))
    columns: int = attrs.field(validator=attrs.validators.ge(1))
    inner: int = attrs.field(validator=attrs.validators.ge(1))
    a: Matrix
    b: Matrix
    out: Matrix
    alpha: float = 1.0
    alpha_at: int = 0
    beta: float = 0.0
    addend: Matrix | None = None
    bias: int = 0
    relu: bool = False
    batch: int = 1


class Platform(Protocol):
    """A device, or one stream of it.

    Addresses are plain integers. Binding (`build`, `launch`, `gemm`, `capture`) runs nothing that
    changes memory of the caller; the calls it returns do. They take effect in the order in which
    they are called: each sees the results of those before it. They may return before the work is
    done.
    """

    @property
    def properties(self) -> Properties:
        """The properties of the device, and its free memory."""

    # ---- memory ----

    def allocate(self, nbytes: int) -> int:
        """The address of that much memory (at least 1 byte), a multiple of ALIGNMENT.

        Its contents are undefined.

        Raises:
            DeviceMemoryError: there is not enough memory; the message says how much there is.
        """

    def free(self, address: int) -> None:
        """Frees memory that `allocate` gave, after the calls made so far."""

    def upload(self, address: int, array: npt.NDArray[Any]) -> None:
        """Copies a C-contiguous array to the device, after the calls made so far.

        The array may be changed as soon as this returns.
        """

    def download(self, address: int, array: npt.NDArray[Any]) -> None:
        """Fills a C-contiguous array from the device; waits for the calls made so far."""

    def clear(self, address: int, nbytes: int) -> None:
        """Sets memory to zero bytes, after the calls made so far."""

    # ---- work ----

    def build(self, source: str, kernels: Sequence[str]) -> Mapping[str, object]:
        """Compiles a module of CUDA C++ (C++17, no includes, `extern "C" __global__` kernels).

        Args:
            source: The text; equal text is compiled once and kept.
            kernels: Names of the kernels that are wanted.

        Returns:
            For each name the kernel, for `launch`.

        Raises:
            DeviceError: it does not compile; the message holds the compiler's message.
        """

    def launch(
        self,
        kernel: object,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[int],
    ) -> Call:
        """Binds a kernel to its arguments: addresses (64-bit pointers), or numbers of 64 bits."""

    def workspace(self) -> object:
        """Working memory for products that run on one branch of one stream, one after another."""

    def gemm(self, product: Gemm, workspace: object = None) -> Call:
        """Binds a matrix product; its algorithm is chosen here, once.

        Args:
            product: The product.
            workspace: Memory that it shares with other products; by default it shares none.
        """

    def capture(
        self,
        calls: Sequence[Call],
        branches: Sequence[int] = (),
        waits: Sequence[Sequence[int]] = (),
    ) -> Call:
        """One call that makes all calls at the least cost for the processor.

        Only calls that `launch` and `gemm` of this platform returned. All memory that they use
        must outlive it. Capturing does not run them. The call, and others with the same
        workspaces, are to run on one stream. Those of one branch run in order, those of several
        may run at the same time.

        Args:
            calls: The calls.
            branches: For each call the number of its branch; by default 0 for all.
            waits: For each call the numbers of calls before it that it waits for.
        """

    def synchronize(self) -> None:
        """Returns when all calls made so far are done; raises DeviceError if one failed."""
