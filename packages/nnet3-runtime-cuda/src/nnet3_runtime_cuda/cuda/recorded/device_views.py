"""Views of device memory as values: the places of their elements, and overlaps."""

from __future__ import annotations

import functools
import math

import attrs
import numpy as np

from nnet3_runtime_cuda.operations import Array

C_TYPES = {
    "f4": "float",
    "f8": "double",
    "b1": "unsigned char",
    "i1": "signed char",
    "u1": "unsigned char",
    "i2": "short",
    "u2": "unsigned short",
    "i4": "int",
    "i8": "long long",
}
"""The C++ type of each element type."""


@attrs.frozen(slots=True)
class View:
    """The elements at address + sum of index times stride of an array in shadow memory.

    Attributes:
        address: Address of the first element, in the shadow.
        shape: Shape of the view.
        strides: Strides in elements; 0 where an operand is broadcast.
        dtype: The type as NumPy writes it without byte order, "f4".
        span: Number of elements from the lowest to the highest address.
        begin: The lowest address.
        end: The address behind the highest element.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    span: int = attrs.field(init=False, eq=False, repr=False)
    begin: int = attrs.field(init=False, eq=False, repr=False)
    end: int = attrs.field(init=False, eq=False, repr=False)

    @span.default
    def _find_span(self) -> int:
        return 1 + sum((n - 1) * abs(s) for n, s in zip(self.shape, self.strides, strict=True))

    @begin.default
    def _find_begin(self) -> int:
        below = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True) if s < 0)
        return self.address + below * self.itemsize

    @end.default
    def _find_end(self) -> int:
        return self.begin + self.span * self.itemsize

    @classmethod
    def of(cls, array: Array, shape: tuple[int, ...] | None = None) -> View:
        """The view of an array, broadcast to a shape if one is given."""
        if shape is not None and array.shape != shape:
            array = np.broadcast_to(array, shape)
        size = array.itemsize
        return cls(
            array.__array_interface__["data"][0],
            array.shape,
            tuple(stride // size for stride in array.strides),
            f"{array.dtype.kind}{size}",
        )

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype[1:])

    @property
    def c_type(self) -> str:
        """The C++ type of an element."""
        return C_TYPES[self.dtype]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_dense(self) -> bool:
        """Whether the view covers all elements from its first to its last."""
        return self.span == math.prod(self.shape)

    @property
    def distinct_bytes(self) -> int:
        """Bytes of memory that a reader of all elements reads."""
        sizes = [n for n, s in zip(self.shape, self.strides, strict=True) if s]
        return min(math.prod(sizes), self.span) * self.itemsize

    def squeezed(self) -> View:
        """The view without its dimensions of length one."""
        kept = [k for k, n in enumerate(self.shape) if n != 1]
        if len(kept) == len(self.shape):
            return self
        return View(
            self.address,
            tuple(self.shape[k] for k in kept),
            tuple(self.strides[k] for k in kept),
            self.dtype,
        )

    def overlaps(self, other: View) -> bool:
        """Whether two views, neither of which is empty, share memory."""
        if self.end <= other.begin or other.end <= self.begin:
            return False
        if self.address == other.address or (self.is_dense and other.is_dense):
            return True
        low = min(self.begin, other.begin)
        return _overlap(
            attrs.evolve(self, address=self.address - low),
            attrs.evolve(other, address=other.address - low),
        )


@functools.lru_cache(maxsize=1 << 16)
def _overlap(a: View, b: View) -> bool:
    """Whether views of the same stretch of memory share elements; True if hard to tell."""
    end = max(a.end, b.end)
    memory = np.lib.stride_tricks.as_strided(_BYTE, shape=(end,), strides=(1,))
    return bool(_may_meet(_array(memory, a), _array(memory, b)))


_BYTE = np.zeros(1, dtype=np.uint8)


def _array(memory: Array, view: View) -> Array:
    size = view.itemsize
    array: Array = np.lib.stride_tricks.as_strided(
        memory[view.address :][:size],
        shape=(*view.shape, size),
        strides=(*(stride * size for stride in view.strides), 1),
    )
    return array


def _may_meet(a: Array, b: Array) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=10_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
