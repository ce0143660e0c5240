"""Kernels that sum columns, with element-wise operations before and after the sums."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from nnet3_runtime_cuda.cuda.recorded.device_views import View
from nnet3_runtime_cuda.cuda.recorded.recorded_operations import ColumnReduce, Map
from nnet3_runtime_cuda.cuda.source.chain import Chain, KernelText, Stores
from nnet3_runtime_cuda.cuda.source.expressions import wider
from nnet3_runtime_cuda.cuda.source.maps import THREADS, Launch, finish

WIDTH, HEIGHT = 32, 8
"""Columns that a block sums, and its threads for each column."""

ROWS_PER_SPLIT = 128
"""The most rows that a block sums, up to MOST_SPLITS blocks; so there are blocks enough."""

MOST_SPLITS = 64


@attrs.frozen
class ColumnGroup:
    """Operations on (rows, columns), sums over the rows, and operations on (columns,).

    Attributes:
        before: Element-wise operations and sums, in order.
        after: Element-wise operations on (columns,): on the sums and on other vectors.
        stores: For each operation of `after` and `before`, whether its result is needed in memory.
    """

    before: tuple[Map | ColumnReduce, ...]
    after: tuple[Map, ...]
    stores: tuple[bool, ...]

    @classmethod
    def of(cls, operations: Sequence[Map | ColumnReduce], stores: Stores) -> ColumnGroup:
        """Groups operations, which are in order."""
        shape = next(op.shape for op in operations if isinstance(op, ColumnReduce))
        before = [n for n, op in enumerate(operations) if op.shape == shape]
        after = [n for n, op in enumerate(operations) if op.shape != shape]
        return cls(
            tuple(operations[n] for n in before),
            tuple(op for op in (operations[n] for n in after) if isinstance(op, Map)),
            tuple(stores(n) for n in (*before, *after)),
        )

    @property
    def sums(self) -> tuple[ColumnReduce, ...]:
        """The sums."""
        return tuple(op for op in self.before if isinstance(op, ColumnReduce))

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, columns)."""
        return self.before[0].shape

    @property
    def splits(self) -> int:
        """The number of parts into which the rows are divided."""
        return min(MOST_SPLITS, -(-self.shape[0] // ROWS_PER_SPLIT))

    @property
    def workspace(self) -> int:
        """Bytes for the partial sums."""
        return 0 if self.splits == 1 else 8 * self.splits * len(self.sums) * self.shape[1]


def column_kernels(group: ColumnGroup, workspace: View | None) -> list[Launch]:
    """One kernel, or two if the rows are divided."""
    first = _first_stage(group, workspace)
    return [first] if workspace is None else [first, _second_stage(group, workspace)]


def _first_stage(group: ColumnGroup, workspace: View | None) -> Launch:
    (rows, columns), sums, splits = group.shape, group.sums, group.splits
    text = KernelText()
    text.guard(group.before[0].guards)
    text.line(f"const int c = blockIdx.x * {WIDTH} + threadIdx.x;")
    for k in range(len(sums)):
        text.line(f"double s{k} = 0;")
    text.line(f"if (c < {columns})")
    step = HEIGHT * splits
    text.line(f"for (int r = blockIdx.y * {HEIGHT} + threadIdx.y; r < {rows}; r += {step}) {{")
    chain = Chain(text, ("r", "c"), f"(unsigned)r * {columns}u + c")
    for number, operation in enumerate(group.before):
        if isinstance(operation, Map):
            chain.run(operation, store=group.stores[number])
            continue
        c_type = wider([operation.operands[0].c_type, operation.out.c_type])
        factors = [chain.read(operand, c_type) for operand in operation.operands]
        text.line(f"s{sums.index(operation)} += {' * '.join(factors)};")
    chain.store_all()
    text.line("}")
    text.line(f"__shared__ double part[{len(sums)}][{HEIGHT}][{WIDTH}];")
    for k in range(len(sums)):
        text.line(f"part[{k}][threadIdx.y][threadIdx.x] = s{k};")
    text.line("__syncthreads();")
    text.line(f"if (threadIdx.y || c >= {columns}) return;")
    for k in range(len(sums)):
        text.line(f"for (int k = 1; k < {HEIGHT}; ++k) s{k} += part[{k}][k][threadIdx.x];")
    if workspace is not None:
        for k in range(len(sums)):
            place = f"{text.pointer(workspace)}[({k} * {splits} + blockIdx.y) * {columns} + c]"
            text.line(f"{place} = s{k};")
    else:
        _after(text, group)
    return finish(text, (-(-columns // WIDTH), splits, 1), (WIDTH, HEIGHT, 1))


def _second_stage(group: ColumnGroup, workspace: View) -> Launch:
    columns, splits = group.shape[1], group.splits
    text = KernelText()
    text.guard(group.before[0].guards)
    text.line(f"const int c = blockIdx.x * {THREADS} + threadIdx.x;")
    text.line(f"if (c >= {columns}) return;")
    for k in range(len(group.sums)):
        text.line(f"double s{k} = 0;")
        place = f"{text.pointer(workspace)}[({k} * {splits} + k) * {columns} + c]"
        text.line(f"for (int k = 0; k < {splits}; ++k) s{k} += {place};")
    _after(text, group)
    return finish(text, (-(-columns // THREADS), 1, 1), (THREADS, 1, 1))


def _after(text: KernelText, group: ColumnGroup) -> None:
    """Adds the operations on the sums of column c."""
    chain = Chain(text, ("c",), "c")
    numbers = [n for n, op in enumerate(group.before) if isinstance(op, ColumnReduce)]
    for k, (number, operation) in enumerate(zip(numbers, group.sums, strict=True)):
        chain.write(operation.out, f"s{k}", store=group.stores[number])
    for number, after in enumerate(group.after, start=len(group.before)):
        chain.run(after, store=group.stores[number])
    chain.store_all()
