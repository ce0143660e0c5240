"""A tape that keeps operations as data, for a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import DeviceError
from ..tape import Array, Call, Operand, Tape
from . import operations as ops
from .host_values import HostValues, Phase
from .natural_gradient import (
    Estimate,
    Estimates,
    record_affine,
    record_precondition,
    record_updates,
)
from .pending import DeviceScratch, PendingSegment
from .program_memory import ProgramMemory
from .source import library
from .views import View

if TYPE_CHECKING:
    from ..kernels.affine_gradient import AffinePreconditioner
    from ..natural_gradient import OnlineNaturalGradient


class DeviceTape(Tape):
    """Records operations on arrays in shadow memory.

    Attributes:
        memory: Where the arrays are.
        operations: What was recorded since `take_operations`.
        host_values: What the host fills in each run.
    """

    cache_scale = 64

    def __init__(
        self,
        memory: ProgramMemory,
        finish: Callable[[Tape], Callable[[], object]],
        estimates: Estimates,
    ) -> None:
        """Starts a tape that `finish` makes a call of; `estimates` are those of the device."""
        scratch = DeviceScratch()
        super().__init__(np, np.float32, scratch)
        self.memory = memory
        self.device_scratch = scratch
        self.operations: list[ops.Operation] = []
        self.host_values = HostValues(memory)
        self._finish = finish
        self._run: Callable[[], object] | None = None
        self._guards: ops.Guards = ()
        self._command = 0
        self._phase = -1
        self._estimates = estimates
        self._pending: list[tuple[Estimate, Phase]] = []

    def run(self) -> None:
        """Runs what was recorded; what it does on the device may not be done when this returns."""
        if self._run is None:
            self._run = self._finish(self)
        self._run()

    # ---- memory ----

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """The shadow of uninitialised memory of the program."""
        return self.memory.reserve(shape, dtype)

    def persistent(self, *shape: int, dtype: npt.DTypeLike | None = None) -> Array:
        """A zeroed array of its own, for what must last from one command to a later one."""
        array = self.memory.zeros(shape, self.dtype if dtype is None else dtype)
        self.persistent_bytes += array.nbytes
        return array

    def begin_command(self) -> None:
        """Frees the scratch memory of the command before."""
        super().begin_command()
        self._command += 1

    def row_blocks(self, *arrays: Array) -> Iterator[tuple[Array, ...]]:
        """All rows at once: there is no cache to be kept to."""
        yield arrays

    # ---- what the host decides ----

    def call(self, function: Callable[..., object], *arguments: object, **keywords: object) -> None:
        """Refused: on a device nothing runs on the host in between.

        Raises:
            DeviceError: always.
        """
        raise DeviceError(f"{function!r} cannot run on a device")

    def host(
        self, fill: Callable[[Array], object], *shape: int, dtype: npt.DTypeLike | None = None
    ) -> Array:
        """An array that the host fills before the segment runs."""
        return self.host_values.array(fill, shape, self.dtype if dtype is None else dtype)

    def note(self, function: Callable[[], object]) -> None:
        """Has the host call a function before the segment runs."""
        self.host_values.note(function)

    @contextmanager
    def when(self, condition: Array) -> Iterator[None]:
        """What is recorded within is guarded by an element of memory."""
        before = self._guards
        self._guards = (*before, self._view(condition).squeezed())
        try:
            yield
        finally:
            self._guards = before

    @contextmanager
    def phase(self, decides: Callable[[], bool]) -> Iterator[Phase]:
        """What is recorded within runs only if the host says so before the segment runs.

        Unlike what depends on `when` it may hold products: the host has a program for each answer.
        """
        with self._in_phase(self.host_values.phase(decides)) as phase:
            yield phase

    @contextmanager
    def _in_phase(self, phase: Phase) -> Iterator[Phase]:
        before, self._phase = self._phase, phase.number
        try:
            yield phase
        finally:
            self._phase = before

    # ---- natural gradient ----

    def estimate(self, natural: OnlineNaturalGradient, dim: int) -> Estimate:
        """The estimate in device memory that stands for one on the host."""
        estimate = self._estimates.of(natural, dim)
        if any(pending is estimate for pending, _ in self._pending):
            self._flush_updates()
        return estimate

    def update_at_end(self, estimate: Estimate, phase: Phase) -> None:
        """Has an estimate updated when the segment ends, or before it is used again."""
        self._pending.append((estimate, phase))

    def _flush_updates(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            self.begin_command()
            record_updates(self, [e for e, _ in pending], [phase for _, phase in pending])

    def phase_of(self, phases: Sequence[Phase]) -> AbstractContextManager[object]:
        """What is recorded within runs if any of some phases does; always if there are none."""
        if not phases:
            return nullcontext()
        if len(phases) == 1:
            return self._in_phase(phases[0])
        return self.phase(lambda: any(phase.value for phase in phases))

    def precondition(self, natural: OnlineNaturalGradient, x: Array) -> Array:
        """Preconditions the rows of x but for a factor, which it returns: (1,)."""
        factor = self.scratch(1)
        self.convert(record_precondition(self, natural, x)[0], factor)
        return factor

    def precondition_affine(
        self,
        sides: AffinePreconditioner,
        xs: Sequence[Array],
        dy: Array,
        linear: Array,
        bias: Array | None,
        *,
        first: bool,
        spread: object = None,
    ) -> None:
        """Adds the natural gradient of an affine map; see `AffinePreconditioner.record`."""
        record_affine(self, sides, xs, dy, linear, bias, first=first)

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
                    guards=self._guards,
                    command=self._command,
                    phase=self._phase,
                )
            )

    def apply(self, function: str, *operands: Operand, out: Array) -> None:
        """out = function of the operands (broadcast)."""
        if out.size == 0:
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

    def random_uniform(self, rng: np.random.Generator, out: Array) -> None:
        """out = numbers in [0, 1): element i of the stream of this operation and this run.

        The generator only gives the key, once.
        """
        key = float(rng.integers(1 << 32))
        runs = iter(range(1 << 53))
        run = self.value(lambda: float(next(runs)))
        stream = len(self.operations)
        operands = (key, float(stream), self._operand(run, out.shape))
        self._map_onto("uniform", operands, out)

    # ---- products and sums ----

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
                guards=self._guards,
                command=self._command,
                phase=self._phase,
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
                guards=self._guards,
                command=self._command,
                phase=self._phase,
            )
        )

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
                    guards=self._guards,
                    command=self._command,
                    phase=self._phase,
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
                    guards=self._guards,
                    command=self._command,
                    phase=self._phase,
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
        """A kernel that is written by hand, from what it reads to what it writes."""
        self.operations.append(
            ops.Special(
                name=kernel.name,
                source=kernel.source,
                grid=kernel.grid,
                block=kernel.block,
                read=tuple(self._view(a) for a in read),
                written=tuple(self._view(a) for a in written),
                guards=self._guards,
                command=self._command,
                phase=self._phase,
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
        self.special(library.unpack_signs(View.of(packed), View.of(out)), (packed,), (out,))

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded since the last `take`."""
        return not self.operations and not self.host_values.is_used

    def take(self) -> tuple[Call, ...]:
        """What was recorded since the last `take`, as one call that is to be bound."""
        self._flush_updates()
        operations, self.operations = tuple(self.operations), []
        return (PendingSegment(operations, self.host_values.take_steps()),)
