"""From operations to launches of kernels and matrix products, still without a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from nnet3_runtime_cuda.cuda.fuse.fusion import Group, Kind, group_operations, side_by_side
from nnet3_runtime_cuda.cuda.fuse.liveness import later_readers
from nnet3_runtime_cuda.cuda.fuse.product_ends import with_epilogues
from nnet3_runtime_cuda.cuda.platform.platform import Matrix
from nnet3_runtime_cuda.cuda.recorded.device_views import View
from nnet3_runtime_cuda.cuda.recorded.recorded_operations import (
    Operation,
    Product,
    RangeSum,
    Special,
)
from nnet3_runtime_cuda.cuda.source import library
from nnet3_runtime_cuda.cuda.source.chain import Stores
from nnet3_runtime_cuda.cuda.source.columns import ColumnGroup, column_kernels
from nnet3_runtime_cuda.cuda.source.maps import Launch, map_kernel
from nnet3_runtime_cuda.cuda.source.rows import RowKernel

DeviceCall = Launch | Product
"""One launch of a kernel, or one product."""

WORKSPACE_AT = 0
"""A placeholder for the address of the workspace, which is known only after all kernels."""


@attrs.frozen
class LaunchList:
    """The work of the device for one segment.

    Attributes:
        calls: In order.
        decisions: For each call the number of the decision on which it depends, or -1.
        workspace: Bytes of working memory that the kernels share.
    """

    calls: tuple[DeviceCall, ...]
    decisions: tuple[int, ...]
    workspace: int


def launch_list(
    operations: Sequence[Operation], is_scratch: Callable[[View], bool], *, fuse: bool = True
) -> LaunchList:
    """The kernels and products for some operations.

    Args:
        operations: Of one segment.
        is_scratch: Whether a view is of memory that is dead at the end of its command.
        fuse: Whether operations may share kernels.
    """
    if fuse:
        operations = with_epilogues(operations)
    readers = later_readers(operations, is_scratch)
    calls: list[DeviceCall] = []
    decisions: list[int] = []
    workspace = 0
    groups = group_operations(operations, fuse=fuse)
    for beside in side_by_side(groups) if fuse else [[group] for group in groups]:
        group = beside[0]
        stores = stores_of(group, readers)
        if group.kind is Kind.MAP:
            parts = [(part.operations, stores_of(part, readers)) for part in beside]
            calls.append(map_kernel(parts))  # type: ignore[arg-type]
        elif group.kind is Kind.ROWS:
            calls.append(RowKernel(group.operations, group.depth, stores).launch())  # type: ignore[arg-type]
        elif group.kind is Kind.COLUMNS:
            columns = ColumnGroup.of(group.operations, stores)  # type: ignore[arg-type]
            size = columns.workspace
            workspace = max(workspace, size)
            view = View(WORKSPACE_AT, (size // 8,), (1,), "f8") if size else None
            calls += column_kernels(columns, view)
        elif len(beside) == 1:
            calls.append(_single(group.operations[0]))
        else:
            calls.append(_specials([part.operations[0] for part in beside]))  # type: ignore[misc]
        decisions += [group.operations[0].decision] * (len(calls) - len(decisions))
    return LaunchList(tuple(calls), tuple(decisions), workspace)


def stores_of(group: Group, readers: Sequence[list[int] | None]) -> Stores:
    """Whether the result of an operation of the group must be in memory.

    It need not be if only operations of the same loop of the same group read it. A group of rows
    has several loops: a result that another loop reads is stored.
    """
    inside = set() if group.kind is Kind.ROWS else set(group.numbers)

    def stores(position: int) -> bool:
        found = readers[group.numbers[position]]
        return found is None or any(reader not in inside for reader in found)

    return stores


def _single(operation: Operation) -> DeviceCall:
    if isinstance(operation, Product):
        return operation
    if isinstance(operation, RangeSum):
        kernel = library.range_sum(operation.source, operation.ranges, operation.out)
        return _guarded(kernel, (*operation.reads, operation.out), operation)
    assert isinstance(operation, Special)
    return _specials([operation])


def _specials(operations: Sequence[Special]) -> Launch:
    """The launch of one kernel by hand, or of several side by side."""
    kernels = [
        library.HandWritten(each.name, each.source, grid=each.grid, block=each.block)
        for each in operations
    ]
    kernel = kernels[0] if len(kernels) == 1 else library.beside(kernels)
    guards = operations[0].guards
    arguments = [view for each in operations for view in (*each.read, *each.written)]
    return _guarded(kernel, (*guards, *arguments), operations[0])


def _guarded(
    kernel: library.HandWritten, arguments: tuple[View, ...], operation: Operation
) -> Launch:
    """The launch of a kernel by hand; guards become its first arguments."""
    text = kernel.source
    for number, guard in reversed(list(enumerate(operation.guards))):
        text = text.replace("@(", f"@({guard.c_type}* g{number}, ", 1)
        text = text.replace(") {\n", f") {{\n  if (!g{number}[0]) return;\n", 1)
    return Launch(text, arguments, (kernel.grid, 1, 1), (kernel.block, 1, 1))


def matrix(view: View, address: Callable[[int], int]) -> Matrix:
    """A two-dimensional view as an operand of a product."""
    (rows, columns), (first, second) = view.shape, view.strides
    place = address(view.address)
    if second == 1 or columns == 1:
        assert first >= columns or rows == 1, "rows of the operands of products do not overlap"
        return Matrix(address=place, stride=max(first, columns, 1))
    assert first == 1 or rows == 1, "rows or columns of the operands of products are contiguous"
    assert second >= rows or columns == 1, "columns of the operands of products do not overlap"
    return Matrix(address=place, stride=max(second, rows, 1), transposed=True)
