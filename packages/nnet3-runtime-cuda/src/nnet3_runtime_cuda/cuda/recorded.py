"""The records of a tape for a device: operations as values, on views of memory.

There are few kinds. All element-wise work is a `Map`; rows and columns may be given by an index
table on either side of it. Sums and maxima are a `RowReduce` or a `ColumnReduce`, products of
matrices a `Product`, and operations with a kernel written by hand a `Special`.
"""

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
    try:
        return bool(np.shares_memory(_array(memory, a), _array(memory, b), max_work=10_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


_BYTE = np.zeros(1, dtype=np.uint8)


def _array(memory: Array, view: View) -> Array:
    size = view.itemsize
    array: Array = np.lib.stride_tricks.as_strided(
        memory[view.address :][:size],
        shape=(*view.shape, size),
        strides=(*(stride * size for stride in view.strides), 1),
    )
    return array


Guards = tuple[View, ...]


@attrs.frozen(slots=True)
class Indexed:
    """Elements of a view whose index along one axis is looked up in a table.

    Element (i, j, ...) is view[table[i], j, ...] for axis 0, and view[i, table[j]] for axis 1.

    Attributes:
        view: The indexed view; its length along the axis does not matter.
        table: (n,) integers.
        axis: 0 or 1.
    """

    view: View
    table: View
    axis: int


Operand = View | Indexed | float
Target = View | Indexed


def views_of(operand: Operand) -> tuple[View, ...]:
    """The views that a reader of an operand accesses."""
    if isinstance(operand, View):
        return (operand,)
    if isinstance(operand, Indexed):
        return operand.view, operand.table
    return ()


@attrs.frozen(slots=True, kw_only=True)
class Operation:
    """Attributes common to all.

    Attributes:
        guards: The operation does nothing unless each of these elements is not 0.
        command: Number of the command it belongs to: scratch memory is dead after that.
        decision: Number of the decision of the host on which it depends; -1 if on none.
        reads: The views that are read, guards included.
    """

    guards: Guards = ()
    command: int = 0
    decision: int = -1
    reads: tuple[View, ...] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        # Cached, because grouping asks for them many times.
        object.__setattr__(self, "reads", self.guards + self._reads())

    @property
    def writes(self) -> tuple[View, ...]:
        """The views that are written."""
        raise NotImplementedError

    @property
    def conditions(self) -> tuple[Guards, int]:
        """Guards and decision: what operations that share a kernel must have in common."""
        return self.guards, self.decision

    @property
    def is_opaque(self) -> bool:
        """Whether it may access any memory, because it finds its operands in a table."""
        return False

    def _reads(self) -> tuple[View, ...]:
        raise NotImplementedError


@attrs.frozen(slots=True, kw_only=True)
class Map(Operation):
    """out = function of the operands, element by element.

    Attributes:
        function: A key of `element_kernels.FUNCTIONS`, or "uniform".
        operands: Broadcast to the shape.
        out: The output. In the table of an `Indexed` output no entry occurs twice.
        shape: The shape of the iteration, without dimensions of length one.
    """

    function: str
    operands: tuple[Operand, ...]
    out: Target
    shape: tuple[int, ...]

    @property
    def writes(self) -> tuple[View, ...]:
        """The output."""
        return views_of(self.out)[:1]

    @property
    def is_indexed(self) -> bool:
        """Whether any operand, or the output, has a table."""
        return any(isinstance(each, Indexed) for each in (*self.operands, self.out))

    def _reads(self) -> tuple[View, ...]:
        read = tuple(view for operand in self.operands for view in views_of(operand))
        return read + views_of(self.out)[1:]


@attrs.frozen(slots=True, kw_only=True)
class Reduce(Operation):
    """Elements of the operands are reduced to fewer elements of the output.

    Attributes:
        operands: All of one shape.
        out: Where results go.
    """

    operands: tuple[View, ...]
    out: View

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the operands."""
        return self.operands[0].shape

    @property
    def writes(self) -> tuple[View, ...]:
        """The output."""
        return (self.out,)

    def _reads(self) -> tuple[View, ...]:
        return self.operands


@attrs.frozen(slots=True, kw_only=True)
class RowReduce(Reduce):
    """out[i] = sum, maximum or sum of products over the last axis of the operands.

    The operands have the shape (outer..., n), out has (outer...).

    Attributes:
        function: "sum", "maximum" or "dot" (two operands).
    """

    function: str


@attrs.frozen(slots=True, kw_only=True)
class ColumnReduce(Reduce):
    """out[c] = sum over the rows of the operand, or of the products of two.

    The one or two operands have the shape (rows, columns), out has (columns,).
    """


@attrs.frozen(slots=True, kw_only=True)
class Product(Operation):
    """out = activation(alpha a b + beta addend + bias), of float32 matrices or stacks of them.

    Attributes:
        a: (rows, inner) or (count, rows, inner), rows or columns contiguous.
        b: (inner, columns), likewise; of a stack with stride 0, if it is the same for all.
        out: (rows, columns), likewise.
        addend: Of the same shape, added to the product; None for none.
        bias: (columns,) that is added to each row; None for none.
        relu: Whether negative results become 0.
        alpha: Factor of the product.
        alpha_at: (1,) float32 that takes the place of alpha; None for none.
    """

    a: View
    b: View
    out: View
    addend: View | None = None
    bias: View | None = None
    relu: bool = False
    alpha: float = 1.0
    alpha_at: View | None = None

    @property
    def writes(self) -> tuple[View, ...]:
        """The output."""
        return (self.out,)

    def _reads(self) -> tuple[View, ...]:
        others = (self.addend, self.bias, self.alpha_at)
        return self.a, self.b, *(view for view in others if view is not None)


@attrs.frozen(slots=True)
class HandWritten:
    """A kernel written by hand, for operands of given shapes.

    Attributes:
        name: A short description, for tables of kernels.
        source: Text with one `extern "C" __global__` kernel; "@" stands for its name.
        grid: Number of blocks.
        block: Threads of each.
    """

    name: str
    source: str
    grid: int = 1
    block: int = 256


@attrs.frozen(slots=True, kw_only=True)
class Special(Operation):
    """The work of a kernel that is written by hand.

    Attributes:
        kernel: The kernel.
        read: The arguments that are read, in order.
        written: The arguments after them, which are written (and may be read).
    """

    kernel: HandWritten
    read: tuple[View, ...]
    written: tuple[View, ...]

    @property
    def writes(self) -> tuple[View, ...]:
        """The outputs."""
        return self.written

    @property
    def is_opaque(self) -> bool:
        """Whether it does not declare its outputs, because it has a table of addresses."""
        return not self.written

    def _reads(self) -> tuple[View, ...]:
        return self.read + self.written
