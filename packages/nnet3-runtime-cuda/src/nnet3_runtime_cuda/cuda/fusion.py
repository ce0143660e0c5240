"""Chooses operations that share a kernel, and results that need not be stored.

First a bias, another matrix and a rectification become the end of the matrix product before them.
Then each operation, in order, joins the group before it if the same threads can do all work of both
on the same elements; otherwise it begins a new group. Element-wise operations of one shape share a
kernel. With reductions of rows they share a kernel that has a block for each row, and with sums of
columns one that goes down the columns. A result whose readers are all known is stored only for
those that do not have it in a register.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto

import attrs

from nnet3_runtime_cuda.cuda.element_kernels import Stores
from nnet3_runtime_cuda.cuda.recorded import (
    ColumnReduce,
    Indexed,
    Map,
    Operation,
    Product,
    Reduce,
    RowReduce,
    Special,
    View,
)
from nnet3_runtime_cuda.cuda.written_kernels import can_go_beside

SMALLEST_STORE, LONGEST_SEARCH = 1 << 20, 400
"""For results of at least this many bytes, the search for readers goes on until they are
overwritten; and the most operations that it looks at."""

LARGEST_BLOCK = 1 << 13
"""The most elements that one block handles if there is only one row."""

NARROWEST_LOOP = 32
"""The least number of columns for which each row gets a block."""

MOST_BESIDE = 16
"""The most groups that share a kernel side by side."""

MOST_POINTERS = 400
"""The most pointers of a kernel: old devices and compilers allow 4096 bytes."""

MOST_PASSED = 8
"""The most groups that an operation is compared with."""

MOST_OF_A_THREAD = 64
"""The most views that a thread works on: each may need registers until the end."""

Stretch = tuple[int, int]
"""Addresses from the first to behind the last."""


# ---- the ends of products ----


def with_epilogues(operations: Sequence[Operation]) -> list[Operation]:
    """The operations, with what is added to a product, and rectification, included in the product.

    A bias is a vector that is added to each row of the result; a matrix may be added as well.
    Rectification is the maximum of the sum and 0. All of it is in place.
    """
    result: list[Operation] = []
    for operation in operations:
        product = result[-1] if result else None
        if isinstance(product, Product) and isinstance(operation, Map):
            together = _taken_in(product, operation)
            if together is not None:
                result[-1] = together
                continue
        result.append(operation)
    return result


def _taken_in(product: Product, operation: Map) -> Product | None:
    """The product that does both, if there is one."""
    out = product.out
    if product.conditions != operation.conditions or product.relu or operation.out != out:
        return None
    if out.strides[-1] != 1 or 1 in out.shape:
        return None
    others = [operand for operand in operation.operands if operand != out]
    if len(others) != 1:
        return None
    other = others[0]
    if operation.function == "maximum" and other == 0.0:
        return attrs.evolve(product, relu=True)
    if operation.function != "add" or not isinstance(other, View):
        return None
    if other.strides[-1] != 1 or other.dtype != out.dtype or other.overlaps(out):
        return None
    is_vector = not any(other.strides[:-1])
    if not is_vector and other.strides[-2] >= other.shape[-1] and product.addend is None:
        return attrs.evolve(product, addend=other)
    if not is_vector or product.bias is not None:
        return None
    bias = View(other.address, other.shape[-1:], (1,), other.dtype)
    return attrs.evolve(product, bias=bias)


# ---- readers of results ----


def later_readers(
    operations: Sequence[Operation], is_scratch: Callable[[View], bool]
) -> list[list[int] | None]:
    """For each operation the numbers of the operations that read its result later.

    None if they are not known. Scratch memory is dead at the end of its command, other memory once
    all of it has been overwritten.
    """
    readers: list[list[int] | None] = []
    for number, operation in enumerate(operations):
        if all(is_scratch(view) for view in operation.writes):
            readers.append(_of_scratch(operations, number))
        else:
            readers.append(_before_overwritten(operations, number))
    return readers


def _of_scratch(operations: Sequence[Operation], number: int) -> list[int]:
    operation, found = operations[number], []
    for later in range(number + 1, len(operations)):
        other = operations[later]
        if other.command != operation.command:
            break
        if any(w.overlaps(r) for w in operation.writes for r in other.reads):
            found.append(later)
    return found


def _before_overwritten(operations: Sequence[Operation], number: int) -> list[int] | None:
    """The readers of a large element-wise result, if all of it is overwritten later."""
    operation = operations[number]
    if not isinstance(operation, Map) or not isinstance(operation.out, View):
        return None
    view = operation.out
    if not view.is_dense or view.size * view.itemsize < SMALLEST_STORE:
        return None
    left, found = [(view.begin, view.end)], []
    for later in range(number + 1, min(number + LONGEST_SEARCH, len(operations))):
        other = operations[later]
        if any(_meets(r, left) and r.overlaps(view) for r in other.reads):
            found.append(later)
        if other.is_opaque:
            return None
        if other.guards or other.decision >= 0 or not isinstance(other, Map | Product | Reduce):
            continue
        for written in other.writes:
            if written.is_dense and not _is_scattered(other):
                left = _without(left, (written.begin, written.end))
        if not left:
            return found
    return None


def _meets(view: View, stretches: Sequence[Stretch]) -> bool:
    return any(begin < view.end and view.begin < end for begin, end in stretches)


def _without(stretches: Sequence[Stretch], taken: Stretch) -> list[Stretch]:
    """The parts of stretches outside of another stretch."""
    left = []
    for begin, end in stretches:
        if begin < min(taken[0], end):
            left.append((begin, min(taken[0], end)))
        if max(taken[1], begin) < end:
            left.append((max(taken[1], begin), end))
    return left


# ---- groups ----


class Kind(Enum):
    """The way in which the operations of a group share their work."""

    MAP = auto()
    ROWS = auto()
    COLUMNS = auto()
    SINGLE = auto()


class Group:
    """Operations that share a kernel.

    Attributes:
        kind: The way in which they share their work.
        operations: In order.
        numbers: Their numbers in the program.
        depth: For rows, the number of dimensions that count them.
        pointers: The arrays to which the kernel needs pointers: address and type.
    """

    def __init__(self, operation: Operation, number: int) -> None:
        """A group of one operation."""
        self.kind, self.depth = Kind.SINGLE, 0
        if isinstance(operation, Map):
            self.kind = Kind.MAP
        elif isinstance(operation, RowReduce):
            self.kind, self.depth = Kind.ROWS, len(operation.shape) - 1
        elif isinstance(operation, ColumnReduce):
            self.kind = Kind.COLUMNS
        self.operations: list[Operation] = []
        self.numbers: list[int] = []
        self.pointers: set[tuple[int, str]] = set()
        self.add(operation, number)

    def add(self, operation: Operation, number: int) -> None:
        """Adds an operation behind the others."""
        self.operations.append(operation)
        self.numbers.append(number)
        self.pointers |= _pointers_of(operation)

    def stores(self, readers: Sequence[list[int] | None]) -> Stores:
        """Whether the result of an operation of the group must be in memory; see `later_readers`.

        It need not be if only operations of the same loop of the same group read it. A group of
        rows has several loops: a result that another loop reads is stored.
        """
        inside = set() if self.kind is Kind.ROWS else set(self.numbers)

        def stores(position: int) -> bool:
            found = readers[self.numbers[position]]
            return found is None or any(reader not in inside for reader in found)

        return stores


def _pointers_of(operation: Operation) -> set[tuple[int, str]]:
    return {(view.address, view.dtype) for view in (*operation.reads, *operation.writes)}


def group_operations(operations: Sequence[Operation]) -> list[Group]:
    """Puts operations into groups, in an order that gives the same results.

    An operation joins the last group that it can join. The group keeps its place if the operation
    shares no memory with the groups behind it. Otherwise the group moves to the end, if it shares
    no memory with them.
    """
    groups: list[Group] = []
    for number, operation in enumerate(operations):
        group = _joined(operation, groups) or _moved(operation, groups)
        if group is None:
            groups.append(Group(operation, number))
        else:
            group.add(operation, number)
    return groups


def _joined(operation: Operation, groups: Sequence[Group]) -> Group | None:
    """The group that an operation can join at the place of the group."""
    for group in reversed(groups[-MOST_PASSED:]):
        if _join(group, operation):
            return group
        if _touch([operation], group.operations):
            return None
    return None


def _moved(operation: Operation, groups: list[Group]) -> Group | None:
    """The group that an operation can join once it is moved to the end, which this does."""
    if not isinstance(operation, Map):
        return None
    for place in range(len(groups) - 2, max(len(groups) - MOST_PASSED, 0) - 1, -1):
        group = groups[place]
        if group.kind is not Kind.MAP or _shape(group.operations[0]) != operation.shape:
            continue
        if any(_touch(group.operations, other.operations) for other in groups[place + 1 :]):
            continue
        if _join(group, operation):
            groups.append(groups.pop(place))
            return group
    return None


def side_by_side(groups: Sequence[Group]) -> list[list[Group]]:
    """Joins neighbouring groups that do not access each other's memory.

    They are element-wise, or kernels written by hand.
    """
    together: list[list[Group]] = []
    for group in groups:
        if together and _goes_beside(together[-1], group):
            together[-1].append(group)
        else:
            together.append([group])
    return together


def _goes_beside(others: Sequence[Group], group: Group) -> bool:
    if group.kind is not others[0].kind or len(others) >= MOST_BESIDE:
        return False
    first, new = others[0].operations[0], group.operations[0]
    if isinstance(first, Special) and isinstance(new, Special):
        if not (can_go_beside(first.kernel.source) and can_go_beside(new.kernel.source)):
            return False
        if first.kernel.block != new.kernel.block:
            return False
    elif group.kind is not Kind.MAP:
        return False
    if first.conditions != new.conditions:
        return False
    if len(group.pointers.union(*(other.pointers for other in others))) > MOST_POINTERS:
        return False
    return not any(
        _meet(a, b) for other in others for a in other.operations for b in group.operations
    )


# ---- which operations can join a group ----


def _join(group: Group, operation: Operation) -> bool:
    """Whether an operation can join a group; changes the kind of the group if so."""
    if group.kind is Kind.SINGLE or group.operations[0].conditions != operation.conditions:
        return False
    if len(group.pointers | _pointers_of(operation)) > MOST_OF_A_THREAD:
        return False
    together = (*group.operations, operation)
    if any(w.overlaps(g) for op in together for w in op.writes for g in operation.guards):
        return False
    if isinstance(operation, Map):
        return _join_map(group, operation)
    if isinstance(operation, RowReduce):
        return _join_rows(group, operation, len(operation.shape) - 1)
    if isinstance(operation, ColumnReduce):
        return _join_columns(group, operation)
    return False


def _join_map(group: Group, operation: Map) -> bool:
    if group.kind is Kind.ROWS:
        return _join_rows(group, operation, group.depth)
    if group.kind is Kind.COLUMNS:
        return _join_columns(group, operation)
    shape, longer = _shape(group.operations[0]), operation.shape
    if shape == longer:
        return _elements_are_apart(group, operation)
    depth = len(shape)
    if shape and longer[:depth] == shape and math.prod(longer[depth:]) >= NARROWEST_LOOP:
        return _join_rows(group, operation, depth)
    return False


def _join_rows(group: Group, operation: Map | RowReduce, depth: int) -> bool:
    if group.kind is Kind.COLUMNS or (group.kind is Kind.ROWS and group.depth != depth):
        return False
    outer = operation.shape[:depth]
    for op in (*group.operations, operation):
        shape = _shape(op)
        if shape[:depth] != outer or (isinstance(op, Map) and op.is_indexed):
            return False
        if not outer and (len(shape) > 1 or math.prod(shape) > LARGEST_BLOCK):
            return False
    for old in group.operations:
        if not all(_same_rows(a, b, outer) for a, b in _pairs(old, operation)):
            return False
    group.kind, group.depth = Kind.ROWS, depth
    return True


def _join_columns(group: Group, operation: Map | ColumnReduce) -> bool:
    if group.kind is Kind.ROWS or _is_scattered(operation):
        return False
    sums = [op for op in group.operations if isinstance(op, ColumnReduce)]
    shape = sums[0].shape if sums else operation.shape
    if group.kind is Kind.MAP and any(
        _shape(op) != shape or _is_scattered(op) for op in group.operations
    ):
        return False
    if not _elements_are_apart(group, operation):
        return False
    if operation.shape == shape:
        touched = (*operation.reads, *operation.writes)
        if any(total.out.overlaps(view) for total in sums for view in touched):
            return False
    elif operation.shape != shape[1:]:
        return False
    group.kind = Kind.COLUMNS
    return True


def _shape(operation: Operation) -> tuple[int, ...]:
    assert isinstance(operation, Map | Reduce)
    return operation.shape


def _is_scattered(operation: Operation) -> bool:
    return isinstance(operation, Map) and isinstance(operation.out, Indexed)


# ---- memory in common ----


def _touch(some: Sequence[Operation], others: Sequence[Operation]) -> bool:
    """Whether the order of some operations and of others matters."""
    if any(each.is_opaque for each in (*some, *others)):
        return True
    return any(_meet(a, b) for a in some for b in others)


def _meet(old: Operation, new: Operation) -> bool:
    return next(_pairs(old, new), None) is not None


def _pairs(old: Operation, new: Operation) -> Iterator[tuple[View, View]]:
    """Pairs of overlapping views of two operations, at least one of which is written."""
    for a in old.writes:
        for b in (*new.reads, *new.writes):
            if a.overlaps(b):
                yield a, b
    for a in old.reads:
        for b in new.writes:
            if a.overlaps(b):
                yield a, b


def _elements_are_apart(group: Group, operation: Operation) -> bool:
    """Whether no thread reads or writes an element that another thread writes."""
    return not any(
        a != b or _is_table(old, a) or _is_table(operation, b)
        for old in group.operations
        for a, b in _pairs(old, operation)
    )


def _is_table(operation: Operation, view: View) -> bool:
    """Whether a view is reached through an index table, or is one."""
    if not isinstance(operation, Map):
        return False
    return any(
        isinstance(o, Indexed) and view in (o.view, o.table)
        for o in (*operation.operands, operation.out)
    )


def _same_rows(a: View, b: View, outer: tuple[int, ...]) -> bool:
    """Whether no row of one view meets another row of the other."""
    depth = len(outer)
    if not depth:
        return True
    if a.strides[:depth] != b.strides[:depth] or a.itemsize != b.itemsize or 0 in a.strides[:depth]:
        return False
    start = min(a.address, b.address)
    end = max(view.address + _inner_span(view, depth) * view.itemsize for view in (a, b))
    step = a.strides[depth - 1] * a.itemsize
    if end - start > step:
        return False
    return all(a.strides[k] >= a.strides[k + 1] * outer[k + 1] for k in range(depth - 1))


def _inner_span(view: View, depth: int) -> int:
    return 1 + sum(
        (n - 1) * s for n, s in zip(view.shape[depth:], view.strides[depth:], strict=True)
    )
