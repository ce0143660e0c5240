"""The records of a tape for a device: operations as values, on views of memory.

There are few kinds. All element-wise work is a `Map`; rows and columns may be given by an index
table on either side of it. Sums and maxima are a `RowReduce` or a `ColumnReduce`, products of
matrices a `Product`, and operations with a kernel written by hand a `Special`.
"""

from __future__ import annotations

from typing import TypedDict

import attrs

from nnet3_runtime_cuda.cuda.recorded.device_views import View

Guards = tuple[View, ...]


class Conditions(TypedDict):
    """The attributes that operations have in common."""

    guards: Guards
    command: int
    decision: int


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
    def is_opaque(self) -> bool:
        """Whether it may access any memory, because it finds its operands in a table."""
        return False

    def _reads(self) -> tuple[View, ...]:
        raise NotImplementedError


@attrs.frozen(slots=True, kw_only=True)
class Map(Operation):
    """out = function of the operands, element by element.

    Attributes:
        function: A key of `FUNCTIONS` in `source.expressions`.
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
class RangeSum(Operation):
    """out[i, c] = sum of source[r, c] over begin <= r < end with (begin, end) = ranges[i].

    Attributes:
        source: (rows, columns).
        ranges: (n, 2) integers.
        out: (n, columns).
    """

    source: View
    ranges: View
    out: View

    @property
    def writes(self) -> tuple[View, ...]:
        """The output."""
        return (self.out,)

    def _reads(self) -> tuple[View, ...]:
        return self.source, self.ranges


@attrs.frozen(slots=True, kw_only=True)
class Product(Operation):
    """out = activation(alpha a b + beta addend + bias), of float32 matrices.

    Attributes:
        a: (rows, inner), rows or columns contiguous.
        b: (inner, columns), likewise.
        out: (rows, columns), likewise.
        addend: (rows, columns) that the product is added to; None for none.
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


@attrs.frozen(slots=True, kw_only=True)
class Special(Operation):
    """A kernel that is written by hand.

    Attributes:
        name: Of the kernel, which `source` defines.
        source: Text with one `extern "C" __global__` kernel; "@" stands for its name.
        read: The arguments that are read, in order.
        written: The arguments after them, which are written (and may be read).
        grid: Number of blocks.
        block: Threads of each.
    """

    name: str
    source: str
    read: tuple[View, ...]
    written: tuple[View, ...]
    grid: int = 1
    block: int = 256

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
