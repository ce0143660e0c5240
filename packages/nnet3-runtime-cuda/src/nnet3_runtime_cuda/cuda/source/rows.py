"""Kernels that reduce rows, with element-wise operations on the same rows: a block for each row.

A group's operations become loops over the columns, in which each thread has its own columns, and
operations on single numbers, which every thread computes for itself. Threads wait for each other
after a reduction, and before they read elements that other threads have written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from nnet3_runtime_cuda.cuda.recorded.device_views import View
from nnet3_runtime_cuda.cuda.recorded.recorded_operations import Map, Operation, RowReduce
from nnet3_runtime_cuda.cuda.source.chain import Chain, KernelText, Stores, key_of
from nnet3_runtime_cuda.cuda.source.expressions import wider
from nnet3_runtime_cuda.cuda.source.maps import Launch, finish, unravel

MOST_THREADS = 256
WARP = 32

LOWEST = {"float": "-3.4028234e38f", "double": "-1.0e300"}
"""The start value of maxima."""

RowOperation = Map | RowReduce


def threads_for(columns: int) -> int:
    """Number of threads of a block for rows of `columns` columns."""
    return min(MOST_THREADS, max(WARP, -(-columns // WARP) * WARP))


@attrs.define
class ColumnLoop:
    """The operations of one loop over the columns, or operations on single numbers.

    Attributes:
        inner: The shape within a row; () for single numbers.
        waits: Whether threads wait for each other before it.
        numbers: Numbers of the operations within the group.
    """

    inner: tuple[int, ...]
    waits: bool
    numbers: list[int] = attrs.field(factory=list)


class ColumnLoops:
    """Divides the operations of a group into loops."""

    def __init__(self, operations: Sequence[RowOperation], depth: int, stores: Stores) -> None:
        """Divides operations on rows, which the first `depth` dimensions count."""
        self.loops: list[ColumnLoop] = []
        self._results: list[View] = []
        self._written: list[View] = []
        self._read: list[View] = []
        for number, operation in enumerate(operations):
            self._add(number, operation, operation.shape[depth:], stores(number))
        self._end_loop()

    def _add(
        self, number: int, operation: RowOperation, inner: tuple[int, ...], store: bool
    ) -> None:
        conflicts = self._conflicts(operation)
        needs_result = any(
            result.overlaps(view)
            for result in self._results
            for view in (*operation.reads, *operation.writes)
        )
        if not self.loops or self.loops[-1].inner != inner or conflicts or needs_result:
            self._end_loop()
            waits = self._conflicts(operation)
            if waits:
                self._written, self._read = [], []
            self.loops.append(ColumnLoop(inner, waits))
        self.loops[-1].numbers.append(number)
        self._read += operation.reads
        if isinstance(operation, RowReduce):
            self._results.append(operation.out)
        elif store:
            self._written += operation.writes

    def _end_loop(self) -> None:
        if self._results:
            # A reduction makes threads wait; only then are its results stored.
            self._written, self._read, self._results = list(self._results), [], []

    def _conflicts(self, operation: Operation) -> bool:
        """Whether it touches elements that other threads have used since all last waited."""
        touched = (*operation.reads, *operation.writes)
        return any(
            not _same(old, view) and old.overlaps(view) for old in self._written for view in touched
        ) or any(
            not _same(old, view) and old.overlaps(view)
            for old in self._read
            for view in operation.writes
        )


def _same(a: View, b: View) -> bool:
    return a.shape == b.shape and key_of(a) == key_of(b)


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
        self._rows = unravel(self._text, "row", self._outer, "r")
        self._numbers = Chain(self._text, self._rows, "row")

    def launch(self) -> Launch:
        """The kernel."""
        for loop in ColumnLoops(self._operations, self._depth, self._stores).loops:
            if loop.waits:
                self._text.line("__syncthreads();")
            if loop.inner:
                self._loop(loop)
            else:
                for number in loop.numbers:
                    operation = self._operations[number]
                    assert isinstance(operation, Map)
                    self._numbers.run(operation, store=self._stores(number))
            self._store_numbers()
        return finish(self._text, (math.prod(self._outer), 1, 1), (self._threads, 1, 1))

    def _loop(self, loop: ColumnLoop) -> None:
        text, size = self._text, math.prod(loop.inner)
        operations = [self._operations[number] for number in loop.numbers]
        for operation in operations:
            for view in operation.writes if isinstance(operation, Map) else ():
                self._numbers.forget(view)
        # The loop reads numbers once, before the first column.
        constants = {
            view: self._numbers.read(self._number(view), view.c_type)
            for operation in operations
            for view in operation.reads
            if self._is_number(view, operation) and not self._is_written(view, operations)
        }
        totals = [op for op in operations if isinstance(op, RowReduce)]
        types = [wider([op.operands[0].c_type, op.out.c_type]) for op in totals]
        names = [
            text.register(kind, LOWEST[kind] if op.function == "maximum" else "0", constant=False)
            for op, kind in zip(totals, types, strict=True)
        ]
        text.line(f"for (unsigned c = threadIdx.x; c < {size}u; c += {self._threads}u) {{")
        columns = unravel(text, "c", loop.inner, "c")
        chain = Chain(text, (*self._rows, *columns), f"row * {size}u + c")
        for view, value in constants.items():
            chain.bind(view, value)
        reductions = iter(zip(names, types, strict=True))
        for number, operation in zip(loop.numbers, operations, strict=True):
            if isinstance(operation, Map):
                chain.run(operation, store=self._stores(number))
            else:
                name, kind = next(reductions)
                values = [chain.read(operand, kind) for operand in operation.operands]
                if operation.function == "maximum":
                    text.line(f"{name} = larger({name}, {values[0]});")
                else:
                    text.line(f"{name} += {' * '.join(values)};")
        chain.store_all()
        text.line("}")
        stored = [
            self._stores(n) for n in loop.numbers if isinstance(self._operations[n], RowReduce)
        ]
        for operation, name, store in zip(totals, names, stored, strict=True):
            function = "Largest" if operation.function == "maximum" else "Sum"
            text.line(f"{name} = over_block<{function}, {self._threads}>({name});")
            self._numbers.write(operation.out, name, store=store)

    def _is_number(self, view: View, operation: RowOperation) -> bool:
        return len(view.strides) == len(operation.shape) and not any(view.strides[self._depth :])

    def _is_written(self, view: View, operations: Sequence[RowOperation]) -> bool:
        return any(isinstance(op, Map) and w.overlaps(view) for op in operations for w in op.writes)

    def _number(self, view: View) -> View:
        return View(
            view.address, view.shape[: self._depth], view.strides[: self._depth], view.dtype
        )

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
