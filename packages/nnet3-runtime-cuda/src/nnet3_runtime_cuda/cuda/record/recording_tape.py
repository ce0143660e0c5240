"""A tape that keeps operations as data, on views of shadow memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.cuda.memory.program_memory import ProgramMemory
from nnet3_runtime_cuda.cuda.record.estimate_schedule import ALWAYS, Use
from nnet3_runtime_cuda.cuda.record.estimates import Estimate, Estimates
from nnet3_runtime_cuda.cuda.record.host_values import HostValues
from nnet3_runtime_cuda.cuda.record.unbound_segments import DeviceScratch
from nnet3_runtime_cuda.cuda.recorded import recorded_operations as ops
from nnet3_runtime_cuda.cuda.recorded.device_views import View
from nnet3_runtime_cuda.cuda.source import library
from nnet3_runtime_cuda.operations import Array, Operand, Tape
from nnet3_runtime_cuda.operations.gradients import FisherEstimate

_T = TypeVar("_T")

FEW_BLOCKS = 4
"""The most blocks of columns that are processed one by one."""


class RecordingTape(Tape):
    """Records the work of a device: element-wise operations, sums, products, gathers.

    Attributes:
        memory: The memory of the arrays.
        device_scratch: Working memory of commands.
        host_values: The work of the host before each run.
        operations: The operations recorded since `take_operations`.
    """

    cache_scale: ClassVar[int] = 64
    gains_by_tiles: ClassVar[bool] = False

    def __init__(self, memory: ProgramMemory, estimates: Estimates) -> None:
        """Starts a tape for arrays in that memory; `estimates` are those of the device."""
        self.dtype = np.dtype(np.float32)
        self.persistent_bytes = 0
        self.memory = memory
        self.device_scratch = DeviceScratch()
        self.operations: list[ops.Operation] = []
        self.host_values = HostValues(memory, estimates.clock)
        self._estimates = estimates
        self._pending: list[tuple[Estimate, int]] = []
        self._ones = np.zeros(0, np.float32)
        self._guards: ops.Guards = ()
        self._command = 0
        self._decision = ALWAYS
        self._places_of_signs: dict[int, tuple[Array, Array]] = {}

    @property
    def threads(self) -> int:
        """One: threads of the processor do not matter."""
        return 1

    # ---- what pays: what a processor gains by is left alone ----

    def uses_tiles(self) -> bool:
        """No."""
        return False

    def gains_by_panels(self, rows: int) -> bool:
        """No."""
        return False

    def gains_by_transposing(self, rows: int, parameters: Array) -> bool:
        """No: products take transposed factors as they are."""
        return False

    # ---- memory ----

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """The shadow of uninitialised memory of the program."""
        return self.memory.reserve(shape, dtype)

    def persistent(self, *shape: int, dtype: npt.DTypeLike | None = None) -> Array:
        """A new zeroed array, for values that last from one command to a later one."""
        array = self.memory.zeros(shape, self.dtype if dtype is None else dtype)
        self.persistent_bytes += array.nbytes
        return array

    @property
    def scratch_bytes(self) -> int:
        """Size of the scratch memory."""
        return self.device_scratch.nbytes

    def scratch(self, *shape: int, dtype: npt.DTypeLike | None = None) -> Array:
        """An uninitialised array for use within the current command only."""
        return self.device_scratch.take(shape, self.dtype if dtype is None else dtype)

    def lend(self, memory: Array) -> None:
        """Lends unused memory of the program to the current command as scratch."""
        self.device_scratch.lend(memory)

    def ones(self, length: int) -> Array:
        """(1, length) of ones; not to be written to."""
        if len(self._ones) < length:
            self._ones = np.ones(length, self.dtype)
        return self._ones[None, :length]

    def begin_command(self) -> None:
        """Frees the scratch memory of the command before."""
        self.device_scratch.begin()
        self._command += 1

    def passing(self) -> AbstractContextManager[None]:
        """A context. Scratch arrays taken within it are valid only until its end."""
        return self.device_scratch.passing()

    # ---- how work is cut up: not at all ----

    def independent(self, items: Sequence[_T]) -> Iterator[_T]:
        """The items in turn."""
        return self.device_scratch.in_turn(items)

    def shared(self, length: int, work: int) -> Iterator[slice]:
        """One slice."""
        return self.device_scratch.in_turn([slice(0, length)])

    def rows_per_sum(self, array: Array, *, arrays: int = 1) -> int:
        """All rows: there is no cache into which blocks must fit."""
        return max(len(array), 1)

    def row_blocks(self, *arrays: Array, rows: int | None = None) -> Iterator[tuple[Array, ...]]:
        """All rows at once."""
        yield arrays

    # ---- what the host does, and what depends on it ----

    def host(
        self, fill: Callable[[Array], object], *shape: int, dtype: npt.DTypeLike | None = None
    ) -> Array:
        """An array that the host fills before the segment runs."""
        return self.host_values.array(fill, shape, self.dtype if dtype is None else dtype)

    def value(self, function: Callable[[], float]) -> Array:
        """(1,) float64: what the function returns before the segment runs."""
        return self.host_values.value(function)

    def note(self, function: Callable[[], object]) -> None:
        """Has the host call a function before the segment runs."""
        self.host_values.note(function)

    def random_uniform(self, rng: np.random.Generator, out: Array) -> None:
        """out = numbers in [0, 1): element i of the stream of this operation and this run.

        The generator only gives the key, once.
        """
        key = float(rng.integers(1 << 32))
        run = self.value(self._estimates.clock.new_draws())
        stream = len(self.operations)
        operands = (key, float(stream), self._operand(run, out.shape))
        self._map_onto("uniform", operands, out)

    @contextmanager
    def when(self, condition: Array) -> Iterator[None]:
        """A context; an element of memory guards the operations recorded within."""
        before = self._guards
        self._guards = (*before, self._view(condition).squeezed())
        try:
            yield
        finally:
            self._guards = before

    def within_range(self, record: Callable[[np.dtype[Any]], None], result: Array) -> None:
        """Records operations in double precision: sums are in double precision anyway."""
        record(np.dtype(np.float64))

    @contextmanager
    def if_decided(self, decision: int) -> Iterator[None]:
        """A context; operations recorded within run only if that decision of the host is positive.

        Unlike in `when`, there may be products among them: the host has a program for each answer.
        """
        before = self._decision
        if decision != ALWAYS:
            self._decision = decision
        try:
            yield
        finally:
            self._decision = before

    def _conditions(self) -> ops.Conditions:
        return {"guards": self._guards, "command": self._command, "decision": self._decision}

    # ---- natural gradient ----

    def estimate(self, natural: FisherEstimate, dim: int) -> tuple[Estimate, Use]:
        """The estimate in device memory for an estimate on the host, and this use of it."""
        estimate = self._estimates.of(natural, dim)
        if any(pending is estimate for pending, _ in self._pending):
            self.flush_updates()
        period = natural.options.update_period
        return estimate, self.host_values.schedule.use(estimate.number, period)

    def update_at_end(self, estimate: Estimate, moves: int) -> None:
        """Has an estimate updated when the segment ends, or before it is used again.

        Args:
            estimate: The estimate.
            moves: Number of the decision whether to update it.
        """
        self._pending.append((estimate, moves))

    @abstractmethod
    def flush_updates(self) -> None:
        """Records the updates for the end of the segment."""

    # ---- recording ----

    def _view(self, array: Array, shape: tuple[int, ...] | None = None) -> View:
        view = View.of(array, shape)
        if not self.device_scratch.contains(view):
            self.memory.adopt(array)
        return view

    def _operand(self, operand: Operand, shape: tuple[int, ...]) -> View | float:
        if isinstance(operand, np.ndarray):
            # Dimensions in which the shape has length one are left out on all sides.
            return self._view(operand, shape).squeezed()
        return float(operand)

    def _map(
        self,
        function: str,
        operands: tuple[ops.Operand, ...],
        out: ops.Target,
        shape: tuple[int, ...],
    ) -> None:
        if 0 not in shape:
            self.operations.append(
                ops.Map(
                    function=function,
                    operands=operands,
                    out=out,
                    shape=shape,
                    **self._conditions(),
                )
            )

    def apply(self, function: str, *operands: Operand, out: Array) -> None:
        """out = function of the operands (broadcast)."""
        if out.size == 0:
            return
        if out.ndim == 3 and 1 < out.shape[1] <= FEW_BLOCKS:
            # One by one they can share kernels with other operations on each of them.
            wide = [
                np.broadcast_to(a, out.shape) if isinstance(a, np.ndarray) else a for a in operands
            ]
            for k in range(out.shape[1]):
                parts = (a[:, k] if isinstance(a, np.ndarray) else a for a in wide)
                self.apply(function, *parts, out=out[:, k])
            return
        given = tuple(self._operand(a, out.shape) for a in operands)
        target = out
        if any(isinstance(view, View) and self._is_shifted(view, out) for view in given):
            # Each thread would write what others are still to read.
            target = self.scratch(*out.shape, dtype=out.dtype)
        self._map_onto(function, given, target)
        if target is not out:
            self.copy(target, out)

    def _is_shifted(self, view: View, out: Array) -> bool:
        """Whether an operand shares memory with an output, but not element by element."""
        target = View.of(out).squeezed()
        same = view.strides == target.strides and view.itemsize == target.itemsize
        return not (same and view.address == target.address) and view.overlaps(target)

    def _map_onto(self, function: str, operands: tuple[ops.Operand, ...], out: Array) -> None:
        view = self._view(out).squeezed()
        self._map(function, operands, view, view.shape)

    def copy(self, source: Operand, out: Array) -> None:
        """out = source (broadcast)."""
        if source is not out:
            self.apply("copy", source, out=out)

    def convert(self, source: Array, out: Array) -> None:
        """out = source as another type; fractions are cut off."""
        self.apply("copy", source, out=out)

    def fill(self, value: float, out: Array) -> None:
        """out = value."""
        self.apply("copy", float(value), out=out)

    def is_positive(self, a: Array, out: Array) -> None:
        """out = 1 where a > 0, else 0."""
        self.apply("greater", a, 0.0, out=out)

    # ---- products and sums ----

    def count_positive(self, a: Array, out: Array) -> None:
        """out[0, c] = number of positive elements of a[:, c]."""
        positive = self.scratch(*a.shape)
        self.is_positive(a, positive)
        self.column_sum(positive, out)

    def add_scaled(self, a: Array, factor: float, out: Array) -> None:
        """out += factor a."""
        term = self.scratch(*out.shape)
        self.multiply(a, factor, term)
        self.add(out, term, out)

    def matmul(
        self, a: Array, b: Array, out: Array, *, add: bool = False, plus: Array | None = None
    ) -> None:
        """out = a b, or out += a b, or out = plus + a b."""
        plus = out if add else plus
        if out.ndim == 3:
            # (rows, blocks, columns): the blocks lie apart by the same distance in every row.
            for k in range(out.shape[1]):
                self.matmul(a[:, k], b, out[:, k], plus=None if plus is None else plus[:, k])
            return
        if out.size == 0:
            return
        if a.shape[1] == 0:
            self.copy(0.0 if plus is None else plus, out)
            return
        self.product(a, b, out, addend=plus)

    def product(
        self,
        a: Array,
        b: Array,
        out: Array,
        *,
        addend: Array | None = None,
        alpha: float = 1.0,
        alpha_at: Array | None = None,
    ) -> None:
        """out = alpha a b + addend; alpha may be an element of memory, (1,)."""
        self.operations.append(
            ops.Product(
                a=self._view(self._for_product(a)),
                b=self._view(self._for_product(b)),
                out=self._view(out),
                addend=None if addend is None else self._view(addend),
                alpha=alpha,
                alpha_at=None if alpha_at is None else self._view(alpha_at),
                **self._conditions(),
            )
        )

    def _for_product(self, a: Array) -> Array:
        """The matrix, or a copy whose rows are contiguous if neither rows nor columns are."""
        if any(n == 1 or s == a.itemsize for n, s in zip(a.shape, a.strides, strict=True)):
            return a
        copy = self.scratch(*a.shape)
        self.copy(a, copy)
        return copy

    def _row_reduce(self, function: str, operands: tuple[Array, ...], out: Array) -> None:
        if out.size == 0:
            return
        if operands[0].shape[-1] == 0:
            self.fill(0.0, out)
            return
        shape = operands[0].shape
        target = self._view(out)
        kept = [k for k, n in enumerate(shape[:-1]) if n != 1]
        outer = tuple(shape[k] for k in kept)
        views = tuple(self._view(a, shape) for a in operands)
        self.operations.append(
            ops.RowReduce(
                function=function,
                operands=tuple(
                    View(
                        v.address,
                        (*outer, shape[-1]),
                        (*(v.strides[k] for k in kept), v.strides[-1]),
                        v.dtype,
                    )
                    for v in views
                ),
                out=target.squeezed(),
                **self._conditions(),
            )
        )

    def small_products(self, a: Array, b: Array, out: Array) -> None:
        """out[i] = a[i] b[i] for stacks of matrices (broadcast)."""
        stack = out.shape[:-2]
        left = np.broadcast_to(a, (*stack, *a.shape[-2:]))
        right = np.broadcast_to(b, (*stack, *b.shape[-2:]))
        for place in np.ndindex(stack):
            self.matmul(left[place], right[place], out[place])

    def row_dot(self, a: Array, b: Array, out: Array) -> None:
        """out[r] = sum over c of a[r, c] b[r, c]."""
        self._row_reduce("dot", (a, b), out)

    def row_sum(self, a: Array, out: Array) -> None:
        """out[r, 0] = sum over c of a[r, c]."""
        self._row_reduce("sum", (a,), out)

    def row_maximum(self, a: Array, out: Array) -> None:
        """out[r, 0] = max over c of a[r, c]."""
        self._row_reduce("maximum", (a,), out)

    def column_sum(self, a: Array, out: Array) -> None:
        """out[0, c] = sum over r of a[r, c]."""
        self._column_reduce((a,), out)

    def column_sum_of_products(self, a: Array, b: Array, out: Array) -> None:
        """out[0, c] = sum over r of a[r, c] b[r, c]."""
        self._column_reduce((a, b), out)

    def _column_reduce(self, operands: tuple[Array, ...], out: Array) -> None:
        if out.size == 0:
            return
        shape = operands[0].shape
        if shape[0] == 0:
            self.fill(0.0, out)
        elif shape[0] == 1:
            self.apply("copy" if len(operands) == 1 else "multiply", *operands, out=out)
        elif shape[1] == 1:
            self._row_reduce(
                "sum" if len(operands) == 1 else "dot", tuple(a.T for a in operands), out
            )
        else:
            self.operations.append(
                ops.ColumnReduce(
                    operands=tuple(self._view(a) for a in operands),
                    out=self._view(out).squeezed(),
                    **self._conditions(),
                )
            )

    def sum(self, a: Array, axis: int, out: Array) -> None:
        """out = sum of a along an axis."""
        self._row_reduce("sum", (np.moveaxis(a, axis, -1),), out)

    def range_sum(self, source: Array, ranges: Array, out: Array) -> bool:
        """out[i] = sum of source[r] over begin <= r < end with (begin, end) = ranges[i]."""
        if out.size:
            self.operations.append(
                ops.RangeSum(
                    source=self._view(source),
                    ranges=self._view(ranges),
                    out=self._view(out),
                    **self._conditions(),
                )
            )
        return True

    # ---- gathering ----

    def take_rows(self, source: Array, rows: Array, out: Array) -> None:
        """out[i] = source[rows[i]]."""
        self._take(source, rows, out, 0)

    def take_columns(self, source: Array, columns: Array, out: Array) -> None:
        """out[:, i] = source[:, columns[i]]."""
        self._take(source, columns, out, 1)

    def _take(self, source: Array, table: Array, out: Array, axis: int) -> None:
        if out.size:
            self._map("copy", (self._indexed(source, table, axis),), self._view(out), out.shape)

    def put_rows(self, values: Array, rows: Array, out: Array) -> None:
        """out[rows[i]] = values[i]."""
        if values.size:
            self._map("copy", (self._view(values),), self._indexed(out, rows, 0), values.shape)

    def _indexed(self, array: Array, table: Array, axis: int) -> ops.Indexed:
        return ops.Indexed(self._view(array), self._view(table), axis)

    # ---- kernels of their own ----

    def special(
        self, kernel: library.HandWritten, read: tuple[Array, ...], written: tuple[Array, ...]
    ) -> None:
        """A kernel that is written by hand, with the arrays that it reads and writes."""
        self.operations.append(
            ops.Special(
                name=kernel.name,
                source=kernel.source,
                grid=kernel.grid,
                block=kernel.block,
                read=tuple(self._view(a) for a in read),
                written=tuple(self._view(a) for a in written),
                **self._conditions(),
            )
        )

    def pack_signs(self, a: Array, out: Array) -> None:
        """Bit k of out[r, j] = whether a[r, 8 j + k] > 0."""
        if out.size == 0:
            return
        packed = out
        if View.of(a).overlaps(View.of(out)):
            packed = self.scratch(*out.shape, dtype=out.dtype)
        self.special(library.pack_signs(View.of(a), View.of(packed)), (a,), (packed,))
        self.copy(packed, out)

    def unpack_signs(self, packed: Array, out: Array) -> None:
        """out[r, c] = 1 or 0, bit c % 8 of packed[r, c // 8]."""
        if out.size == 0:
            return
        if View.of(packed).overlaps(View.of(out)):
            copy = self.scratch(*packed.shape, dtype=packed.dtype)
            self.copy(packed, copy)
            packed = copy
        byte, bit = self._bytes_and_bits(out.shape[1])
        operands = self._indexed(packed, byte, 1), self._view(bit, out.shape)
        self._map("bit", operands, self._view(out), out.shape)

    def _bytes_and_bits(self, columns: int) -> tuple[Array, Array]:
        """In which byte of a row the sign of each column is, and as which bit."""
        if columns not in self._places_of_signs:
            numbers = np.arange(columns, dtype=np.int32)
            self._places_of_signs[columns] = numbers // 8, (numbers % 8).astype(np.uint8)
        return self._places_of_signs[columns]
