"""Kernels that reduce rows or columns, with element-wise operations on the same elements.

Rows have a block each. A group's operations become loops over the columns, in which each thread has
its own columns, and operations on single numbers, which every thread computes for itself. Threads
wait for each other after a reduction, and before they read elements that other threads have
written. Sums of columns go down the columns, by parts of the rows if there are many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnet3_runtime_cuda.cuda.element_kernels import (
    THREADS,
    Chain,
    KernelText,
    Launch,
    Stores,
    wider,
)
from nnet3_runtime_cuda.cuda.recorded import ColumnReduce, Map, Operation, RowReduce, View

WARP = 32

LOWEST = {"float": "-3.4028234e38f", "double": "-1.0e300"}
"""The start value of maxima."""

WIDTH, HEIGHT = 32, 8
"""Columns that a block sums, and its threads for each column."""

ROWS_PER_SPLIT = 128
"""The most rows that a block sums, up to MOST_SPLITS blocks; so there are blocks enough."""

MOST_SPLITS = 64

WORKSPACE_AT = 0
"""A placeholder for the address of the workspace, which is known only after all kernels."""

RowOperation = Map | RowReduce


# ---- rows ----


def threads_for(columns: int) -> int:
    """Number of threads of a block for rows of `columns` columns."""
    return min(THREADS, max(WARP, -(-columns // WARP) * WARP))


ColumnLoop = tuple[tuple[int, ...], bool, list[int]]
"""A loop over the columns, or operations on single numbers: the shape within a row, () for single
numbers; whether threads wait for each other before it; numbers of the operations in the group."""


def column_loops(
    operations: Sequence[RowOperation], depth: int, stores: Stores
) -> list[ColumnLoop]:
    """Divides operations on rows, which the first `depth` dimensions count, into loops."""
    loops: list[ColumnLoop] = []
    results: list[View] = []  # of the last loop's reductions
    written: list[View] = []
    read: list[View] = []
    for number, operation in enumerate(operations):
        inner = operation.shape[depth:]
        touched = (*operation.reads, *operation.writes)
        if (
            not loops
            or loops[-1][0] != inner
            or _conflicts(operation, written, read)
            or any(result.overlaps(view) for result in results for view in touched)
        ):
            if results:
                # A reduction makes threads wait; only then are its results stored.
                written, read, results = results, [], []
            waits = _conflicts(operation, written, read)
            if waits:
                written, read = [], []
            loops.append((inner, waits, []))
        loops[-1][-1].append(number)
        read += operation.reads
        if isinstance(operation, RowReduce):
            results.append(operation.out)
        elif stores(number):
            written += operation.writes
    return loops


def _conflicts(operation: Operation, written: Sequence[View], read: Sequence[View]) -> bool:
    """Whether it touches elements that other threads have used since all last waited."""
    touched = (*operation.reads, *operation.writes)
    return any(old != view and old.overlaps(view) for old in written for view in touched) or any(
        old != view and old.overlaps(view) for old in read for view in operation.writes
    )


class RowKernel:
    """Writes the kernel of a group of operations on the same rows."""

    def __init__(self, operations: Sequence[RowOperation], depth: int, stores: Stores) -> None:
        """Begins a kernel for rows, which the first `depth` dimensions count."""
        self._operations = operations
        self._depth = depth
        self._stores = stores
        self._outer = operations[0].shape[:depth]
        self._threads = threads_for(max(math.prod(op.shape[depth:]) for op in operations))
        self._text = KernelText()
        self._text.guard(operations[0].guards)
        self._text.line("const unsigned row = blockIdx.x;")
        self._rows = self._text.unravel("row", self._outer, "r")
        self._numbers = Chain(self._text, self._rows, "row")

    def launch(self) -> Launch:
        """The kernel."""
        loops = column_loops(self._operations, self._depth, self._stores)
        for inner, waits, numbers in loops:
            if waits:
                self._text.line("__syncthreads();")
            if inner:
                self._loop(inner, numbers)
            else:
                for number in numbers:
                    operation = self._operations[number]
                    assert isinstance(operation, Map)
                    self._numbers.run(operation, store=self._stores(number))
            self._store_numbers()
        return self._text.launch((math.prod(self._outer), 1, 1), (self._threads, 1, 1))

    def _loop(self, inner: tuple[int, ...], numbers: Sequence[int]) -> None:
        text, size = self._text, math.prod(inner)
        operations = [self._operations[number] for number in numbers]
        for operation in operations:
            for view in operation.writes if isinstance(operation, Map) else ():
                self._numbers.forget(view)
        # The loop reads numbers once, before the first column.
        constants = {
            view: self._numbers.read(self._number(view), view.c_type)
            for operation in operations
            for view in operation.reads
            if self._is_number(view, operation) and not _is_written(view, operations)
        }
        totals: dict[int, tuple[RowReduce, str, str]] = {}
        for number, operation in zip(numbers, operations, strict=True):
            if isinstance(operation, RowReduce):
                kind = wider([operation.operands[0].c_type, operation.out.c_type])
                start = LOWEST[kind] if operation.function == "maximum" else "0"
                totals[number] = operation, kind, text.register(kind, start, constant=False)
        text.line(f"for (unsigned c = threadIdx.x; c < {size}u; c += {self._threads}u) {{")
        columns = text.unravel("c", inner, "c")
        chain = Chain(text, (*self._rows, *columns), f"row * {size}u + c")
        for view, value in constants.items():
            chain.bind(view, value)
        for number, operation in zip(numbers, operations, strict=True):
            if isinstance(operation, Map):
                chain.run(operation, store=self._stores(number))
                continue
            _, kind, name = totals[number]
            values = [chain.read(operand, kind) for operand in operation.operands]
            if operation.function == "maximum":
                text.line(f"{name} = larger({name}, {values[0]});")
            else:
                text.line(f"{name} += {' * '.join(values)};")
        chain.store_all()
        text.line("}")
        for number, (total, _, name) in totals.items():
            function = "Largest" if total.function == "maximum" else "Sum"
            text.line(f"{name} = over_block<{function}, {self._threads}>({name});")
            self._numbers.write(total.out, name, store=self._stores(number))

    def _is_number(self, view: View, operation: RowOperation) -> bool:
        return len(view.strides) == len(operation.shape) and not any(view.strides[self._depth :])

    def _number(self, view: View) -> View:
        depth = self._depth
        return View(view.address, view.shape[:depth], view.strides[:depth], view.dtype)

    def _store_numbers(self) -> None:
        pending = self._numbers.pending
        if not pending:
            return
        if any(loaded.overlaps(target) for loaded in self._numbers.loaded for target in pending):
            # Another thread might still have to read what this one overwrites.
            self._text.line("__syncthreads();")
        self._text.line("if (threadIdx.x == 0) {")
        self._numbers.store_all()
        self._text.line("}")


def _is_written(view: View, operations: Sequence[RowOperation]) -> bool:
    return any(isinstance(op, Map) and w.overlaps(view) for op in operations for w in op.writes)


# ---- columns ----


class ColumnKernels:
    """Writes the kernels of operations on (rows, columns), sums over the rows, and what follows.

    What follows are element-wise operations on (columns,): on the sums and on other vectors.

    Attributes:
        workspace: Bytes for partial sums; 0 if the rows are not divided.
    """

    def __init__(self, operations: Sequence[Map | ColumnReduce], stores: Stores) -> None:
        """Takes operations, which are in order."""
        self._shape = next(op.shape for op in operations if isinstance(op, ColumnReduce))
        self._operations = operations
        self._stores = stores
        self._sums = [n for n, op in enumerate(operations) if isinstance(op, ColumnReduce)]
        rows, columns = self._shape
        self._splits = min(MOST_SPLITS, -(-rows // ROWS_PER_SPLIT))
        self.workspace = 0 if self._splits == 1 else 8 * self._splits * len(self._sums) * columns

    def launches(self) -> list[Launch]:
        """One kernel, or two if the rows are divided."""
        if not self.workspace:
            return [self._first_stage(None)]
        workspace = View(WORKSPACE_AT, (self.workspace // 8,), (1,), "f8")
        return [self._first_stage(workspace), self._second_stage(workspace)]

    def _first_stage(self, workspace: View | None) -> Launch:
        (rows, columns), splits, sums = self._shape, self._splits, range(len(self._sums))
        text = KernelText()
        text.guard(self._operations[0].guards)
        text.line(f"const int c = blockIdx.x * {WIDTH} + threadIdx.x;")
        for k in sums:
            text.line(f"double s{k} = 0;")
        text.line(f"if (c < {columns})")
        step = HEIGHT * splits
        text.line(f"for (int r = blockIdx.y * {HEIGHT} + threadIdx.y; r < {rows}; r += {step}) {{")
        chain = Chain(text, ("r", "c"), f"(unsigned)r * {columns}u + c")
        for number, operation in enumerate(self._operations):
            if isinstance(operation, ColumnReduce):
                c_type = wider([operation.operands[0].c_type, operation.out.c_type])
                factors = [chain.read(operand, c_type) for operand in operation.operands]
                text.line(f"s{self._sums.index(number)} += {' * '.join(factors)};")
            elif operation.shape == self._shape:
                chain.run(operation, store=self._stores(number))
        chain.store_all()
        text.line("}")
        text.line(f"__shared__ double part[{len(sums)}][{HEIGHT}][{WIDTH}];")
        for k in sums:
            text.line(f"part[{k}][threadIdx.y][threadIdx.x] = s{k};")
        text.line("__syncthreads();")
        text.line(f"if (threadIdx.y || c >= {columns}) return;")
        for k in sums:
            text.line(f"for (int k = 1; k < {HEIGHT}; ++k) s{k} += part[{k}][k][threadIdx.x];")
        if workspace is None:
            self._finish_columns(text)
        else:
            for k in sums:
                place = f"{text.pointer(workspace)}[({k} * {splits} + blockIdx.y) * {columns} + c]"
                text.line(f"{place} = s{k};")
        return text.launch((-(-columns // WIDTH), splits, 1), (WIDTH, HEIGHT, 1))

    def _second_stage(self, workspace: View) -> Launch:
        columns, splits = self._shape[1], self._splits
        text = KernelText()
        text.guard(self._operations[0].guards)
        text.line(f"const int c = blockIdx.x * {THREADS} + threadIdx.x;")
        text.line(f"if (c >= {columns}) return;")
        for k in range(len(self._sums)):
            text.line(f"double s{k} = 0;")
            place = f"{text.pointer(workspace)}[({k} * {splits} + k) * {columns} + c]"
            text.line(f"for (int k = 0; k < {splits}; ++k) s{k} += {place};")
        self._finish_columns(text)
        return text.launch((-(-columns // THREADS), 1, 1), (THREADS, 1, 1))

    def _finish_columns(self, text: KernelText) -> None:
        """Adds the operations on the sums of column c."""
        chain = Chain(text, ("c",), "c")
        for k, number in enumerate(self._sums):
            chain.write(self._operations[number].out, f"s{k}", store=self._stores(number))
        for number, operation in enumerate(self._operations):
            if isinstance(operation, Map) and operation.shape != self._shape:
                chain.run(operation, store=self._stores(number))
        chain.store_all()
