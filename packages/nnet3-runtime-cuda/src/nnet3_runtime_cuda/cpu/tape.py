"""The tape of the processor: operations become calls of NumPy and of a BLAS library.

Each operation is bound to its operands once, for example as `functools.partial(numpy.add, a, b,
out)`. A run is a loop over these calls, and allocates nothing.

With `Workers`, all but the smallest operations and chains of them (`row_blocks`, `independent`) are
shared by several threads: the recorded calls become `Lanes`. For that the tape stores the arrays
that each call reads and writes. The same number of threads gives the same results each time;
another number may round products and sums of columns differently.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.cpu.natural_gradient import (
    OnlineNaturalGradient,
    record_projection,
    record_updates,
)
from nnet3_runtime_cuda.cpu.products import TILES, bound_gemm, gemm, is_mkl, panels_are_faster
from nnet3_runtime_cuda.cpu.recorder import Recorder
from nnet3_runtime_cuda.cpu.threads import Workers
from nnet3_runtime_cuda.operations import Array, Operand
from nnet3_runtime_cuda.operations.gradients import ColumnBlocks, FisherEstimate, Side
from nnet3_runtime_cuda.operations.panels import ROWS
from nnet3_runtime_cuda.operations.scratch import PRODUCT_WORK, Workspace, part_of

FEW_ROWS = 48
"""The largest number of rows of products that are computed transposed."""

TRANSPOSED_ROWS = range(FEW_ROWS + 1, 1025)
"""Rows of products that are up to a third faster with parameters transposed beforehand."""

TRANSPOSED_ROWS_MKL = range(4, 257)
"""The same for MKL, which gains up to three times where rows are few."""

WIDE = 4
"""The ratio of width to height from which a product of one row is faster transposed."""

FEWEST_MKL_ROWS = 8
"""The smallest number of rows of MKL's products that are computed transposed."""

FEWEST_ROWS_SHARED = 2
"""Products with fewer rows for each thread are cut up by columns."""

WAITS_COST = 64
"""The factor by which work cut up by columns counts less, because threads wait for each other."""

SLOW_WITH_NUMBERS = ("maximum", "minimum")
"""Functions for which NumPy has vector instructions for two arrays, but not for an array and a
number: these take four times as long in the cache."""

MOST_COUNTED = 255
"""The largest number that a byte can count."""

FEWEST_COLUMNS = 64
"""With fewer columns, a row of numbers saves no time."""

GATHER_BITS = np.uint64(sum(1 << (56 - 7 * bit) for bit in range(8)))
"""The factor that brings eight bytes of 0 or 1 as bits into the highest byte of the product."""


class NumpyTape(Recorder):
    """Records operations as calls that work on NumPy's arrays."""

    gains_by_stacks: ClassVar[bool] = False
    preconditions_rows: ClassVar[bool] = True

    def __init__(
        self,
        dtype: npt.DTypeLike = np.float32,
        workspace: Workspace | None = None,
        workers: Workers | None = None,
        online: Callable[[FisherEstimate], OnlineNaturalGradient] | None = None,
    ) -> None:
        """Starts with nothing recorded.

        Args:
            dtype: Of the values.
            workspace: The memory of matrices and scratch; None for new memory.
            workers: The threads that share the calls; None if one thread runs them.
            online: Finds what has an estimate of the natural gradient; None for new ones.
        """
        super().__init__(dtype, workspace, workers)
        self._online = online or functools.cache(OnlineNaturalGradient)

    # ---- choices by speed ----

    def uses_tiles(self) -> bool:
        """Whether convolutions use tiles."""
        return TILES.chosen() != "0"

    def gains_by_panels(self, rows: int) -> bool:
        """Whether a product with `rows` rows is faster with its factor in panels."""
        return not is_mkl() and self.dtype == np.float32 and rows in ROWS and panels_are_faster()

    def gains_by_transposing(self, rows: int, parameters: Array) -> bool:
        """Whether products with `rows` rows are faster with (out, in) parameters transposed."""
        if is_mkl():
            return rows in TRANSPOSED_ROWS_MKL
        output_dim, input_dim = parameters.shape
        return rows in TRANSPOSED_ROWS or (rows == 1 and output_dim >= WIDE * input_dim)

    # ---- element by element ----

    def apply(self, function: str, *operands: Operand, out: Array) -> None:
        """out = function of the operands (broadcast), by NumPy's name for it."""
        function, operands = avoided(function, operands)
        if function in SLOW_WITH_NUMBERS:
            operands = tuple(self._as_row(operand, out) for operand in operands)
            for target, *parts in self._broadcast_shares(out, *operands):
                call = partial(getattr(np, function), *parts, out=target)
                self.record(call, reads=parts, writes=(target,))
            return
        for target, *parts in self._broadcast_shares(out, *operands):
            # `out` by position: a keyword costs 0.2 microseconds a call.
            call = partial(getattr(np, function), *parts, target)
            self.record(call, reads=parts, writes=(target,))

    def _as_row(self, operand: Operand, out: Array) -> Operand:
        """A number as a row of equal numbers, if that is faster; else the operand."""
        if isinstance(operand, np.ndarray) or out.ndim < 2 or out.dtype != self.dtype:
            return operand
        return operand if out.shape[-1] < FEWEST_COLUMNS else self.row(operand, out.shape[-1])

    def copy(self, source: Operand, out: Array) -> None:
        """out = source (broadcast)."""
        if source is out:
            return
        if not (isinstance(source, np.ndarray) and np.may_share_memory(source, out)):
            for target, part in self._broadcast_shares(out, source):
                # With few rows this takes half as long as `copyto`.
                call = partial(target.__setitem__, ..., part)
                self.record(call, reads=(part,), writes=(target,))
        elif source.dtype == out.dtype == self.dtype:
            # For columns of the same rows copyto would make a temporary copy. The product uses
            # vector instructions; "positive" does not.
            self.multiply(source, 1.0, out)
        else:
            call = partial(np.copyto, out, source, casting="unsafe")
            self.record(call, reads=(source,), writes=(out,))

    def fill(self, value: float, out: Array) -> None:
        """out = value."""
        for (target,) in self._broadcast_shares(out):
            self.record(partial(target.fill, value), writes=(target,))

    def is_positive(self, a: Array, out: Array) -> None:
        """out = 1 where a > 0, else 0; a must not be negative."""
        # Both have vector instructions; a comparison converted to numbers has none.
        self.minimum(a, 1.0, out)
        self.ceil(out, out)

    def pack_signs(self, a: Array, out: Array) -> None:
        """Bit k of out[r, j] = whether a[r, 8 j + k] > 0."""
        columns, width = a.shape[1], out.shape[1]
        apart = self.scratch(*out.shape, dtype=np.uint8)
        for values, packed in self.row_blocks(a, apart):
            flags = self.scratch(len(values), 8 * width, dtype=np.bool_)
            if columns < 8 * width:
                self.fill(False, flags[:, columns:])
            self.greater(values, 0.0, flags[:, :columns])
            words = flags.view(np.uint64)
            # Each of the eight bytes, 0 or 1, is shifted to its bit of the highest byte.
            self.record(partial(np.multiply, words, GATHER_BITS, words), writes=(words,))
            self.record(partial(np.right_shift, words, np.uint64(56), words), writes=(words,))
            self.copy(words, packed)
        self.copy(apart, out)

    def unpack_signs(self, packed: Array, out: Array) -> None:
        """out[r, c] = 1 or 0, bit c % 8 of packed[r, c // 8]."""
        columns, width = out.shape[1], packed.shape[1]
        apart = packed
        if np.may_share_memory(packed, out):
            apart = self.scratch(*packed.shape, dtype=np.uint8)
            self.copy(packed, apart)
        table = _bits_of_bytes(out.dtype)
        for values, stored in self.row_blocks(out, apart):
            numbers = self.scratch(len(stored), width, dtype=np.int64)
            self.copy(stored, numbers)
            is_whole = columns == 8 * width and values.flags.c_contiguous
            target = values if is_whole else self.scratch(len(stored), 8 * width, dtype=out.dtype)
            self.take_rows(table, numbers.reshape(-1), target.reshape(-1, 8))
            if not is_whole:
                self.copy(target[:, :columns], values)

    # ---- products and sums ----

    def matmul(
        self, a: Array, b: Array, out: Array, *, add: bool = False, plus: Array | None = None
    ) -> None:
        """out = a b, or out += a b, or out = plus + a b."""
        if add:
            plus = out
        axis, work = self._product_cut(a, out)
        for part in self.shared(out.shape[axis], work):
            left, right, target = _part_of_product(a, b, out, part, axis)
            added: Array | None = target
            if plus is not out:
                added = None if plus is None else part_of(plus, part, axis, out.shape)
            self._product(left, right, target, added)

    def _product_cut(self, a: Array, out: Array) -> tuple[int, int]:
        """The axis of its output along which a product is cut up for threads, and its work.

        It is cut up by rows, or by columns if there are few rows; stacks of matrices are cut up by
        matrix. The axis counts from the end; the work is in the unit of `shared`.
        """
        work = out.size * a.shape[-1] // PRODUCT_WORK
        if out.ndim > 2 and max(out.shape[:-2]) >= self.threads:
            return _longest_of_stack(out), work
        if out.shape[-2] >= FEWEST_ROWS_SHARED * self.threads:
            return -2, work
        # Too small: the threads would wait for one another before and after it.
        return -1, work // WAITS_COST

    def _product(self, a: Array, b: Array, out: Array, plus: Array | None) -> None:
        """Records out = a b, or out = plus + a b; `plus` may be `out` itself."""
        if out.ndim == 2 and self._is_faster_transposed(len(out), b):
            product = self.scratch(out.shape[1], len(out))
            call = bound_gemm(b.T, a.T, product) if is_mkl() else None
            call = call or partial(np.matmul, b.T, a.T, product)
            self.record(call, reads=(a, b), writes=(product,))
            if plus is not None:
                self.add(plus, product.T, out)
            else:
                self.copy(product.T, out)
            return
        # One row is a product of matrix and vector, for which OpenBLAS has a better function.
        wanted = is_mkl() or (plus is not None and len(out) > 1)
        call = bound_gemm(a, b, out, beta=float(plus is not None)) if wanted else None
        if call is not None:
            if plus is not None:
                self.copy(plus, out)
            self.record(call, reads=(a, b), writes=(out,))
            return
        if plus is None:
            self.record(partial(np.matmul, a, b, out), reads=(a, b), writes=(out,))
            return
        product = self.scratch(*out.shape)
        self.record(partial(np.matmul, a, b, product), reads=(a, b), writes=(product,))
        self.add(plus, product, out)

    @staticmethod
    def _is_faster_transposed(rows: int, b: Array) -> bool:
        """Whether the library prefers many rows and few columns to few rows and many columns.

        MKL does not if the rows of b are contiguous, or if the result has very few rows.
        """
        if not is_mkl():
            return 1 < rows <= FEW_ROWS
        return FEWEST_MKL_ROWS <= rows <= FEW_ROWS and b.strides[1] != b.itemsize

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
        beta, reads = float(add), () if scale is None else (scale,)
        for rows in self.shared(len(out), out.size * a.shape[1] // PRODUCT_WORK):
            part, target = a[rows], out[rows]
            call = None if reads else bound_gemm(part, b, target, alpha=alpha, beta=beta)
            if scale is not None:
                call = partial(_scaled_gemm, part, b, target, scale, beta)
            call = call or partial(gemm, part, b, target, alpha=alpha, beta=beta)
            self.record(call, reads=(part, b, *reads), writes=(target,))

    def small_products(self, a: Array, b: Array, out: Array) -> None:
        """out[i] = a[i] b[i] for stacks of matrices (broadcast), each too small for threads."""
        axis = -1 if out.ndim == 2 else _longest_of_stack(out)
        for part in self.shared(out.shape[axis], out.size):
            left, right, target = _part_of_product(a, b, out, part, axis)
            # This follows the order of the axes; NumPy's order would read all of b for each piece
            # of a.
            call = partial(np.matmul, left, right, target, order="C")
            self.record(call, reads=(left, right), writes=(target,))

    def _wide(self, *arrays: Array) -> list[Array]:
        """Copies in double precision, of equal arrays one."""
        copies: dict[int, Array] = {}
        for array in arrays:
            if id(array) not in copies:
                copies[id(array)] = self.scratch(*array.shape, dtype=np.float64)
                self.copy(array, copies[id(array)])
        return [copies[id(array)] for array in arrays]

    def row_dot(self, a: Array, b: Array, out: Array) -> None:
        """out[r] = sum over c of a[r, c] b[r, c]; out: (rows,)."""
        if out.dtype != a.dtype:
            for x, y, target in self.row_blocks(a, b, out):
                left, right = self._wide(x, y)
                self.row_dot(left, right, target)
            return
        for x, y, target in self._shares(a, b, out):
            self.record(partial(np.vecdot, x, y, target), reads=(x, y), writes=(target,))

    def column_sum(self, a: Array, out: Array) -> None:
        """out[0, c] = sum over r of a[r, c]; out: (1, cols)."""
        (a,) = (a,) if out.dtype == a.dtype else self._wide(a)
        for columns in self.shared(a.shape[1], a.size):
            part, target = a[:, columns], out[:, columns]
            ones = self.ones(len(a)) if a.dtype == self.dtype else np.ones((1, len(a)), a.dtype)
            call = partial(np.matmul, ones, part, target)
            self.record(call, reads=(part,), writes=(target,))

    def count_positive(self, a: Array, out: Array) -> None:
        """out[0, c] = number of positive elements of a[:, c]; out: (1, cols)."""
        counts = self.scratch(a.shape[1], dtype=np.uint8)
        flags = self.scratch(min(len(a), MOST_COUNTED), a.shape[1], dtype=np.bool_)
        for start in range(0, max(len(a), 1), MOST_COUNTED):
            part = a[start : start + MOST_COUNTED]
            positive = flags[: len(part)]
            self.greater(part, 0.0, positive)
            # The sum of bytes as bytes has vector instructions.
            sum_up = partial(np.add.reduce, positive.view(np.uint8), axis=0, dtype=np.uint8)
            self.record(partial(sum_up, out=counts), reads=(positive,), writes=(counts,))
            if start:
                self.add(out[0], counts, out[0])
            else:
                self.copy(counts, out[0])

    def column_sum_of_products(self, a: Array, b: Array, out: Array) -> None:
        """out[0, c] = sum over r of a[r, c] b[r, c]; out: (1, cols)."""
        a, b = (a, b) if out.dtype == a.dtype else self._wide(a, b)
        if not len(a):
            self.fill(0.0, out)
            return
        rows = self.rows_per_sum(a)
        count = -(-len(a) // rows)
        sums = out if count == 1 else self.scratch(count, a.shape[1], dtype=a.dtype)
        for number, (x, y) in enumerate(self.row_blocks(a, b, rows=rows)):
            # One pass over x and y, which does not write the products.
            call = partial(np.einsum, "rc,rc->c", x, y, out=sums[number])
            self.record(call, reads=(x, y), writes=(sums[number],))
        if count > 1:
            self.column_sum(sums, out)

    def row_sum(self, a: Array, out: Array) -> None:
        """out[r, 0] = sum over c of a[r, c]; out: (rows, 1)."""
        for part, target in self._shares(a, out):
            call = partial(np.add.reduce, part, axis=1, out=target, keepdims=True)
            self.record(call, reads=(part,), writes=(target,))

    def sum(self, a: Array, axis: int, out: Array) -> None:
        """out = sum of a along an axis."""
        shares = self._shares(a, out) if axis else [(a, out)]
        for part, target in shares:
            call = partial(np.add.reduce, part, axis=axis, out=target)
            self.record(call, reads=(part,), writes=(target,))

    def row_maximum(self, a: Array, out: Array) -> None:
        """out[r, 0] = max over c of a[r, c]; out: (rows, 1)."""
        for part, target in self._shares(a, out):
            call = partial(np.maximum.reduce, part, axis=1, out=target, keepdims=True)
            self.record(call, reads=(part,), writes=(target,))

    # ---- natural gradient ----

    def precondition(self, estimate: FisherEstimate, x: Array) -> Array:
        """Preconditions the rows of x in place, up to a factor, which it returns: (1,)."""
        natural = self._online(estimate)
        factor: Array = np.zeros(1, dtype=self.dtype)

        def precondition() -> None:
            factor[0] = natural.precondition(x)

        self.record(precondition, writes=(x, factor))
        return factor

    def side(self, estimate: FisherEstimate, x: ColumnBlocks) -> Side:
        """One side of a gradient, with memory for H = X W^T."""
        natural = self._online(estimate)
        w = natural.w_for(x.dim, self.dtype)
        return Side(x, w, self.scratch(len(x), len(w)), natural)

    def project(self, sides: Sequence[Side]) -> Array:
        """H = X W^T of sides; returns the product of the scales that keep the norms, (1,)."""
        return record_projection(self, sides)

    def update_estimates(self, sides: Sequence[Side]) -> None:
        """Changes the estimates by the rows of sides, where an update is due."""
        record_updates(self, sides)

    # ---- random numbers ----

    def random_uniform(self, rng: np.random.Generator, out: Array) -> None:
        """out = uniform random numbers in [0, 1), new ones in each run; out: float32."""
        self.record(partial(_fill_uniform, rng, out), writes=(out,))

    # ---- gathering ----

    def take_rows(self, source: Array, rows: Array, out: Array) -> None:
        """out[i] = source[rows[i]]; rows: int64 within range; out contiguous."""
        # mode="clip" because the default buffers the output.
        for target, part in self._shares(out, rows):
            call = partial(source.take, part, 0, target, "clip")
            self.record(call, reads=(source, part), writes=(target,))

    def take_columns(self, source: Array, columns: Array, out: Array) -> None:
        """out[:, i] = source[:, columns[i]]; columns: int64 within range; out contiguous."""
        for target, part in self._shares(out, source):
            call = partial(part.take, columns, 1, target, "clip")
            self.record(call, reads=(part, columns), writes=(target,))

    def put_rows(self, values: Array, rows: Array, out: Array) -> None:
        """out[rows[i]] = values[i]; rows: int64 within range, none twice."""
        self.record(partial(out.__setitem__, rows, values), reads=(rows, values), writes=(out,))


def _scaled_gemm(a: Array, b: Array, out: Array, scale: Array, beta: float) -> None:
    gemm(a, b, out, alpha=float(scale.item()), beta=beta)


def _longest_of_stack(out: Array) -> int:
    """The longest axis of a stack of matrices, without the axes of rows and columns."""
    stack = out.shape[:-2]
    return stack.index(max(stack)) - out.ndim


def _part_of_product(
    a: Array, b: Array, out: Array, part: slice, axis: int
) -> tuple[Array, Array, Array]:
    """The parts of a and b that make a part of out = a b, and that part.

    Args:
        a: (..., rows, inner), broadcast to the stack.
        b: (..., inner, columns), broadcast to the stack.
        out: (..., rows, columns).
        part: A range of indexes of the axis.
        axis: An axis of `out`, counted from the end.
    """
    stack = out.shape[:-2]
    left = a if axis == -1 else part_of(a, part, axis, (*stack, *a.shape[-2:]))
    right = b if axis == -2 else part_of(b, part, axis, (*stack, *b.shape[-2:]))
    return left, right, part_of(out, part, axis, out.shape)


def _fill_uniform(rng: np.random.Generator, out: Array) -> None:
    if out.flags.c_contiguous and out.dtype == np.float32:
        rng.random(dtype=np.float32, out=out)
    else:
        out[...] = rng.random(out.shape, dtype=np.float32)


def avoided(function: str, operands: tuple[Operand, ...]) -> tuple[str, tuple[Operand, ...]]:
    """The function and the operands, or a replacement if NumPy would be wrong.

    Operations are bound to their operands once, so that runs pay nothing for it.

    `negative` reads the wrong elements in NumPy 2.1.0 to 2.5.4, on any processor: where elements of
    the input lie 16 bytes apart for types of 4 bytes, or 64 bytes for types of 8, and those of the
    output are apart too, it reads contiguous elements. Pull request 27027 of numpy/numpy introduced
    the fault: the choice of the vector loop for contiguous inputs compares their stride, in
    elements, with the size of an element instead of 1. NumPy 2.5.5 is right. The product with -1 is
    exact; it takes some nanoseconds more, so other operands keep `negative`.

    Args:
        function: NumPy's name for it.
        operands: Arrays and numbers.
    """
    if function == "negative":
        (operand,) = operands
        if isinstance(operand, np.ndarray) and operand.itemsize**2 in operand.strides:
            return "multiply", (operand, -1)
    return function, operands


@functools.cache
def _bits_of_bytes(dtype: np.dtype[Any]) -> Array:
    """(256, 8): the bits of each byte, the lowest first, as numbers."""
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    return np.asarray(bits, dtype=dtype)
