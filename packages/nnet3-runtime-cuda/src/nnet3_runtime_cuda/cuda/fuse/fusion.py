"""Groups operations that share a kernel.

Each operation, in order, joins the group before it if the same threads can do all work of both on
the same elements; otherwise it begins a new group. Element-wise operations of one shape share a
kernel. With reductions of rows they share a kernel that has a block for each row, and with sums of
columns one that goes down the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum, auto
from typing import TypeGuard

import attrs

from nnet3_runtime_cuda.cuda.recorded.device_views import View
from nnet3_runtime_cuda.cuda.recorded.recorded_operations import (
    ColumnReduce,
    Indexed,
    Map,
    Operation,
    RowReduce,
    Special,
)
from nnet3_runtime_cuda.cuda.source import library
from nnet3_runtime_cuda.cuda.source.chain import key_of

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

Pointer = tuple[int, str]
"""The begin of a view, and its array: an argument of a kernel."""


class Kind(Enum):
    """The way in which the operations of a group share their work."""

    MAP = auto()
    ROWS = auto()
    COLUMNS = auto()
    SINGLE = auto()


@attrs.define
class Group:
    """Operations that share a kernel.

    Attributes:
        kind: The way in which they share their work.
        operations: In order.
        numbers: Their numbers in the program.
        depth: For rows, the number of dimensions that count them.
        pointers: The arrays to which the kernel needs pointers.
    """

    kind: Kind
    operations: list[Operation]
    numbers: list[int]
    depth: int = 0
    pointers: set[Pointer] = attrs.field(factory=set)

    def __attrs_post_init__(self) -> None:
        for operation in self.operations:
            self.pointers |= pointers_of(operation)

    def add(self, operation: Operation, number: int) -> None:
        """Adds an operation behind the others."""
        self.operations.append(operation)
        self.numbers.append(number)
        self.pointers |= pointers_of(operation)


def pointers_of(operation: Operation) -> set[Pointer]:
    """The arrays to which a kernel needs pointers for an operation."""
    return {(view.address, view.dtype) for view in (*operation.reads, *operation.writes)}


def group_operations(operations: Sequence[Operation], *, fuse: bool = True) -> list[Group]:
    """Puts operations into groups, in an order that gives the same results.

    An operation joins the last group that it can join. The group keeps its place if the operation
    shares no memory with the groups behind it. Otherwise the group moves to the end, if it shares
    no memory with them.

    Args:
        operations: Of one segment.
        fuse: Whether groups may have more than one operation.
    """
    groups: list[Group] = []
    for number, operation in enumerate(operations):
        if not (fuse and (_joined(operation, number, groups) or _met(operation, number, groups))):
            groups.append(_first(operation, number))
    return groups


def _joined(operation: Operation, number: int, groups: Sequence[Group]) -> bool:
    """Adds an operation to a group at the place of the group, if this is legal."""
    for group in reversed(groups[-MOST_PASSED:]):
        if _join(group, operation):
            group.add(operation, number)
            return True
        if _touch([operation], group.operations):
            return False
    return False


def _met(operation: Operation, number: int, groups: list[Group]) -> bool:
    """Adds an operation to a group that moves to the end, if this is legal."""
    if not isinstance(operation, Map):
        return False
    for place in range(len(groups) - 2, max(len(groups) - MOST_PASSED, 0) - 1, -1):
        group = groups[place]
        if group.kind is not Kind.MAP or group.operations[0].shape != operation.shape:  # type: ignore[attr-defined]
            continue
        if any(_touch(group.operations, other.operations) for other in groups[place + 1 :]):
            continue
        if _join(group, operation):
            del groups[place]
            group.add(operation, number)
            groups.append(group)
            return True
    return False


def _touch(some: Sequence[Operation], others: Sequence[Operation]) -> bool:
    """Whether the order of some operations and of others matters."""
    if any(each.is_opaque for each in (*some, *others)):
        return True
    return any(_pairs(a, b) for a in some for b in others)


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
    if group.kind is Kind.SINGLE:
        if not (_shares_launches(first) and _shares_launches(new) and first.block == new.block):
            return False
    elif group.kind is not Kind.MAP:
        return False
    if (first.guards, first.decision) != (new.guards, new.decision):
        return False
    if len(group.pointers.union(*(other.pointers for other in others))) > MOST_POINTERS:
        return False
    return not any(
        _pairs(a, b) for other in others for a in other.operations for b in group.operations
    )


def _shares_launches(operation: Operation) -> TypeGuard[Special]:
    return isinstance(operation, Special) and library.can_go_beside(operation.source)


def _first(operation: Operation, number: int) -> Group:
    if isinstance(operation, Map):
        return Group(Kind.MAP, [operation], [number])
    if isinstance(operation, RowReduce):
        return Group(Kind.ROWS, [operation], [number], depth=len(operation.shape) - 1)
    if isinstance(operation, ColumnReduce):
        return Group(Kind.COLUMNS, [operation], [number])
    return Group(Kind.SINGLE, [operation], [number])


def _join(group: Group, operation: Operation) -> bool:
    """Whether an operation can join a group; changes the kind of the group if so."""
    first = group.operations[0]
    if group.kind is Kind.SINGLE:
        return False
    if (first.guards, first.decision) != (operation.guards, operation.decision):
        return False
    if len(group.pointers | pointers_of(operation)) > MOST_OF_A_THREAD:
        return False
    if any(
        w.overlaps(g)
        for op in (*group.operations, operation)
        for w in op.writes
        for g in operation.guards
    ):
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
    first = group.operations[0]
    assert isinstance(first, Map)
    if first.shape == operation.shape:
        return _elements_are_apart(group, operation)
    shape, longer = first.shape, operation.shape
    if (
        shape
        and longer[: len(shape)] == shape
        and math.prod(longer[len(shape) :]) >= NARROWEST_LOOP
    ):
        return _join_rows(group, operation, len(shape))
    return False


def _join_rows(group: Group, operation: Map | RowReduce, depth: int) -> bool:
    if group.kind is Kind.COLUMNS or (group.kind is Kind.ROWS and group.depth != depth):
        return False
    together = [*group.operations, operation]
    outer = operation.shape[:depth]
    for op in together:
        assert isinstance(op, Map | RowReduce)
        if op.shape[:depth] != outer or _is_indexed(op):
            return False
        if not outer and (len(op.shape) > 1 or math.prod(op.shape) > LARGEST_BLOCK):
            return False
    if not all(_rows_are_apart(old, operation, outer) for old in group.operations):
        return False
    group.kind, group.depth = Kind.ROWS, depth
    return True


def _join_columns(group: Group, operation: Map | ColumnReduce) -> bool:
    if group.kind is Kind.ROWS:
        return False
    sums = [op for op in group.operations if isinstance(op, ColumnReduce)]
    shape = sums[0].shape if sums else operation.shape
    after = [op for op in group.operations if isinstance(op, Map) and op.shape != shape]
    if group.kind is Kind.MAP and (after or any(_is_scattered(op) for op in group.operations)):
        return False
    if _is_scattered(operation):
        return False
    if not all(_same_elements(old, operation) for old in group.operations):
        return False
    if operation.shape == shape:
        reads_sum = any(s.out.overlaps(v) for s in sums for v in operation.reads)
        if reads_sum or any(s.out.overlaps(w) for s in sums for w in operation.writes):
            return False
    elif operation.shape != shape[1:]:
        return False
    group.kind = Kind.COLUMNS
    return True


def _is_indexed(operation: Operation) -> bool:
    return isinstance(operation, Map) and any(
        isinstance(o, Indexed) for o in (*operation.operands, operation.out)
    )


def _is_scattered(operation: Operation) -> bool:
    return isinstance(operation, Map) and isinstance(operation.out, Indexed)


def _pairs(old: Operation, new: Operation) -> list[tuple[View, View]]:
    """Pairs of overlapping views of two operations, at least one of which is written."""
    touched = (*new.reads, *new.writes)
    pairs = [(a, b) for a in old.writes for b in touched]
    pairs += [(a, b) for a in old.reads for b in new.writes]
    return [(a, b) for a, b in pairs if a.overlaps(b)]


def _elements_are_apart(group: Group, operation: Map) -> bool:
    """Whether no thread reads or writes an element that another thread writes."""
    return all(_same_elements(old, operation) for old in group.operations)


def _same_elements(old: Operation, new: Operation) -> bool:
    for a, b in _pairs(old, new):
        if a.shape != b.shape or key_of(a) != key_of(b):
            return False
        if _is_table(old, a) or _is_table(new, b):
            return False
    return True


def _is_table(operation: Operation, view: View) -> bool:
    """Whether a view is reached through an index table, or is one."""
    if not isinstance(operation, Map):
        return False
    return any(
        isinstance(o, Indexed) and view in (o.view, o.table)
        for o in (*operation.operands, operation.out)
    )


def _rows_are_apart(old: Operation, new: Operation, outer: tuple[int, ...]) -> bool:
    """Whether no block reads or writes an element that another block writes."""
    return all(_same_rows(a, b, outer) for a, b in _pairs(old, new))


def _same_rows(a: View, b: View, outer: tuple[int, ...]) -> bool:
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
