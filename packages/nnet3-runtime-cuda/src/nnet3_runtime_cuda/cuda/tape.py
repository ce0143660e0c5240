"""The tape of a device: keeps operations as data, on views of shadow memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.cuda import recorded, written_kernels
from nnet3_runtime_cuda.cuda.memory import DeviceScratch, ProgramMemory
from nnet3_runtime_cuda.cuda.recorded import Operand as RecordedOperand
from nnet3_runtime_cuda.cuda.recorded import View
from nnet3_runtime_cuda.cuda.segments import ALWAYS, Clock, DeviceSegment, HostSteps
from nnet3_runtime_cuda.operations import Array, Call, Operand, Tape

_T = TypeVar("_T")

FEW_BLOCKS = 4
"""The most blocks of columns that are processed one by one."""


class RecordingTape(Tape):
    """Records operations on arrays in shadow memory, and hands them over by segments.

    The natural gradient is recorded by `DeviceTape`.

    Attributes:
        memory: The memory of the arrays.
        device_scratch: Working memory of commands.
        host_steps: The work of the host before each run of the segment.
        operations: The operations of the segment so far.
    """

    cache_scale: ClassVar[int] = 64
    gains_by_stacks: ClassVar[bool] = True
    preconditions_rows: ClassVar[bool] = False

    def __init__(
        self, memory: ProgramMemory, finish: Callable[[Tape], Callable[[], object]], clock: Clock
    ) -> None:
        """Starts a tape.

        Args:
            memory: The memory of the arrays.
            finish: Makes a call of the tape.
            clock: Counts minibatches and random draws.
        """
        self.dtype = np.dtype(np.float32)
        self.persistent_bytes = 0
        self.memory = memory
        self._scratch = self.device_scratch = DeviceScratch()
        self.operations: list[recorded.Operation] = []
        self.host_steps = HostSteps(memory, clock)
        self._clock = clock
        self._finish = finish
        self._run: Callable[[], object] | None = None
        self._ones = np.zeros(0, np.float32)
        self._guards: recorded.Guards = ()
        self._command = 0
        self._decision = ALWAYS
        self._places_of_signs: dict[int, tuple[Array, Array]] = {}

    # ---- segments ----

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded since the last `take`."""
        return not self.operations and not self.host_steps.is_used

    def take(self) -> tuple[Call, ...]:
        """The operations since the last `take`, as one call that will be bound."""
        segment = DeviceSegment(tuple(self.operations), self.host_steps, self.device_scratch)
        self.operations, self.host_steps = [], HostSteps(self.memory, self._clock)
        return (segment,)

    def run(self) -> None:
        """Runs the recorded operations; the device may still be at work when this returns."""
        if self._run is None:
            self._run = self._finish(self)
        self._run()

    # ---- memory ----

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """The shadow of uninitialised memory of the program."""
        return self.memory.reserve(shape, dtype)

    def persistent(self, *shape: int, dtype: npt.DTypeLike | None = None) -> Array:
        """A new zeroed array, for values that last from one command to a later one."""
        array = self.memory.zeros(shape, self.dtype if dtype is None else dtype)
        self.persistent_bytes += array.nbytes
        return array

    def ones(self, length: int) -> Array:
        """(1, length) of ones; not to be written to."""
        if len(self._ones) < length:
            self._ones = np.ones(length, self.dtype)
        return self._ones[None, :length]

    def begin_command(self) -> None:
        """Frees the scratch memory of the command before."""
        super().begin_command()
        self._command += 1

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
        return self.host_steps.array(fill, shape, self.dtype if dtype is None else dtype)

    def value(self, function: Callable[[], float]) -> Array:
        """(1,) float64: what the function returns before the segment runs."""
        return self.host_steps.value(function)

    def note(self, function: Callable[[], object]) -> None:
        """Has the host call a function before the segment runs."""
        self.host_steps.note(function)

    def random_uniform(self, rng: np.random.Generator, out: Array) -> None:
        """out = numbers in [0, 1): element i of the stream of this operation and this run.

        The generator only gives the key, once.
        """
        key = float(rng.integers(1 << 32))
        run = self.value(self._clock.new_draws())
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

    # ---- recording ----

    def _record(self, kind: type[recorded.Operation], **attributes: Any) -> None:
        """Adds an operation; its attributes may not be those that all operations have."""
        self.operations.append(
            kind(guards=self._guards, command=self._command, decision=self._decision, **attributes)
        )

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
        operands: tuple[RecordedOperand, ...],
        out: View | recorded.Indexed,
        shape: tuple[int, ...],
    ) -> None:
        if 0 not in shape:
            self._record(recorded.Map, function=function, operands=operands, out=out, shape=shape)

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

    def _map_onto(self, function: str, operands: tuple[RecordedOperand, ...], out: Array) -> None:
        view = self._view(out).squeezed()
        self._map(function, operands, view, view.shape)

    def copy(self, source: Operand, out: Array) -> None:
        """out = source (broadcast)."""
        if source is not out:
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

    def matmul(
        self, a: Array, b: Array, out: Array, *, add: bool = False, plus: Array | None = None
    ) -> None:
        """out = a b, or out += a b, or out = plus + a b; also of stacks of matrices."""
        plus = out if add else plus
        if out.ndim == 3 and b.ndim == 2 and out.shape[1] < out.shape[0]:
            # The longer axis counts the rows of products, the other one the products.
            a, out = a.transpose(1, 0, 2), out.transpose(1, 0, 2)
            plus = None if plus is None else plus.transpose(1, 0, 2)
        if out.ndim == 3 and len(out) <= FEW_BLOCKS:
            # One by one they can take in what is added to each of them.
            for k, target in enumerate(out):
                factor = b if b.ndim == 2 else b[k]
                self.matmul(a[k], factor, target, plus=None if plus is None else plus[k])
            return
        if out.size == 0:
            return
        if a.shape[-1] == 0:
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
        self._record(
            recorded.Product,
            a=self._view(self._for_product(a)),
            b=self._view(self._for_product(b), (*out.shape[:-2], *b.shape[-2:])),
            out=self._view(out),
            addend=None if addend is None else self._view(addend),
            alpha=alpha,
            alpha_at=None if alpha_at is None else self._view(alpha_at),
        )

    def scaled_product(
        self,
        a: Array,
        b: Array,
        out: Array,
        *,
        add: bool = False,
        alpha: float = 1.0,
        scale: Array | None = None,
    ) -> None:
        """out = alpha a b, or out += that; `scale`, of one element, takes the place of alpha."""
        self.product(a, b, out, addend=out if add else None, alpha=alpha, alpha_at=scale)

    def _for_product(self, a: Array) -> Array:
        """The matrix, or a copy if neither its rows nor its columns are contiguous and apart."""
        rows, columns = a.shape[-2:]
        first, second = (stride // a.itemsize for stride in a.strides[-2:])
        has_rows = (second == 1 or columns == 1) and (first >= columns or rows == 1)
        has_columns = (first == 1 or rows == 1) and (second >= rows or columns == 1)
        if has_rows or has_columns:
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
        target = self._view(out).squeezed()
        kept = [k for k, n in enumerate(shape) if n != 1 or k == len(shape) - 1]
        sizes = tuple(shape[k] for k in kept)
        views = []
        for view in [self._view(a, shape) for a in operands]:
            strides = tuple(view.strides[k] for k in kept)
            views.append(View(view.address, sizes, strides, view.dtype))
        self._record(recorded.RowReduce, function=function, operands=tuple(views), out=target)

    def small_products(self, a: Array, b: Array, out: Array) -> None:
        """out[i] = a[i] b[i] for stacks of matrices (broadcast)."""
        stack = out.shape[:-2]
        left = np.broadcast_to(a, (*stack, *a.shape[-2:]))
        right = np.broadcast_to(b, (*stack, *b.shape[-2:]))
        for place in np.ndindex(stack[:-1]):
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
            function = "sum" if len(operands) == 1 else "dot"
            self._row_reduce(function, tuple(a.T for a in operands), out)
        else:
            views = tuple(self._view(a) for a in operands)
            self._record(recorded.ColumnReduce, operands=views, out=self._view(out).squeezed())

    def sum(self, a: Array, axis: int, out: Array) -> None:
        """out = sum of a along an axis."""
        self._row_reduce("sum", (np.moveaxis(a, axis, -1),), out)

    def range_sum(
        self, source: Array, ranges: Array, out: Array, squares: Array | None = None
    ) -> bool:
        """out[i] = sum of source[r] over begin <= r < end with (begin, end) = ranges[i]."""
        if out.size:
            written = (out,) if squares is None else (out, squares)
            kernel = written_kernels.range_sum(
                View.of(source), View.of(ranges), [View.of(each) for each in written]
            )
            self.special(kernel, (source, ranges), written)
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

    def _indexed(self, array: Array, table: Array, axis: int) -> recorded.Indexed:
        return recorded.Indexed(self._view(array), self._view(table), axis)

    # ---- kernels of their own ----

    def special(
        self, kernel: recorded.HandWritten, read: tuple[Array, ...], written: tuple[Array, ...]
    ) -> None:
        """A kernel that is written by hand, with the arrays that it reads and writes."""
        self._record(
            recorded.Special,
            kernel=kernel,
            read=tuple(self._view(a) for a in read),
            written=tuple(self._view(a) for a in written),
        )

    def pack_signs(self, a: Array, out: Array) -> None:
        """Bit k of out[r, j] = whether a[r, 8 j + k] > 0."""
        if out.size == 0:
            return
        packed = out
        if View.of(a).overlaps(View.of(out)):
            packed = self.scratch(*out.shape, dtype=out.dtype)
        self.special(written_kernels.pack_signs(View.of(a), View.of(packed)), (a,), (packed,))
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
