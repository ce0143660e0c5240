"""A tape of array operations: each bound to its operands once, run any number of times.

Kernels are written as plain array code. What they call is a `Tape`, which does not compute but
keeps `functools.partial(numpy.add, a, b, out)` and the like: slicing, reshaping and every decision
happen once, when a computation is lowered, and a run is a loop over ready calls that allocates
nothing.

The methods are the operations that a kernel may use. Another tape keeps them as data instead, from
which code for a device is made (`cuda.tape`); what runs there has no step on the host, so nothing
that a kernel records may look at values except through these operations. What does not depend on
values (which minibatches record statistics) is decided on the host, by `host` and `value`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from .blas import bound_gemm, is_mkl

if TYPE_CHECKING:
    from .kernels.affine_gradient import AffinePreconditioner
    from .natural_gradient import OnlineNaturalGradient
    from .row_matrices import TimeSplice

Array = npt.NDArray[Any]
Call = Callable[[], object]
Operand = Array | float

FEW_ROWS = 48
"""Products with at most so many rows are computed transposed."""

FEWEST_ROWS = 8
"""Products of MKL with fewer rows are not."""

BLOCK_ELEMENTS = 1 << 16
"""Chains of operations run over so many elements at a time, 256 KiB."""

GATHER_BITS = np.uint64(sum(1 << (56 - 7 * bit) for bit in range(8)))
"""Times a number whose eight bytes are 0 or 1: its highest byte has them as bits."""

UFUNC_BUFFER = 256
"""Elements that NumPy may buffer of an operand of an element-wise operation.

With its default of 8192 it copies rows shorter than that to buffers which it allocates for the
call, so that sums of a matrix and a vector, or of parts of matrices, take up to four times longer.
"""


@contextmanager
def running() -> Iterator[None]:
    """The settings of NumPy under which recorded calls are to run.

    Overflow to infinity and division by it are part of the formulas (sigmoid); log 0 is not an
    error either.
    """
    with np.errstate(all="ignore"):
        before = np.setbufsize(UFUNC_BUFFER)
        try:
            yield
        finally:
            np.setbufsize(before)


class Scratch:
    """Working memory that the commands of a program share: each may use all of it, in turn."""

    def __init__(self, xp: ModuleType) -> None:
        self._xp = xp
        self._block: Array = xp.empty(0, dtype=np.uint8)
        self._used = 0
        self.nbytes = 0

    def begin(self) -> None:
        """Gives everything taken so far back: a new command starts."""
        self._used = 0

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An uninitialised array that holds its contents until the command has run."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        start = -(-self._used // 64) * 64
        if start + size > self._block.nbytes:
            # Arrays taken before keep the old block alive; doubling bounds what that wastes.
            capacity = max(2 * self._block.nbytes, start + size)
            self._block = self._xp.empty(capacity, dtype=np.uint8)
            self.nbytes += capacity
        self._used = start + size
        taken: Array = self._block[start : start + size].view(dtype).reshape(shape)
        return taken


class Tape:
    """Records operations on arrays of one array module.

    Every operation names its output array; none returns a value. Operands may be the output array
    itself, but not another array that overlaps it.

    Attributes:
        xp: the array module (numpy).
        dtype: of the values that pass through the network.
        calls: the recorded operations, in order.
        persistent_bytes: memory given out by `persistent`.
    """

    cache_scale: ClassVar[int] = 1
    """How much larger than that of a processor core the cache is that work is cut up for."""

    def __init__(
        self, xp: ModuleType = np, dtype: npt.DTypeLike = np.float32, scratch: Scratch | None = None
    ) -> None:
        self.xp = xp
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.calls: list[Call] = []
        self.persistent_bytes = 0
        self._scratch = Scratch(xp) if scratch is None else scratch
        self._ones: Array = xp.ones((1, 0), dtype=self.dtype)

    @property
    def scratch_bytes(self) -> int:
        """Size of the scratch memory."""
        return self._scratch.nbytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded since the last `take`."""
        return not self.calls

    def take(self) -> tuple[Call, ...]:
        """What was recorded since the last `take`."""
        taken, self.calls = tuple(self.calls), []
        return taken

    def run(self) -> None:
        """Runs what was recorded."""
        with running():
            for call in self.calls:
                call()

    # ---- memory ----

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Uninitialised memory of the program."""
        array: Array = self.xp.empty(shape, dtype=dtype)
        return array

    def scratch(self, *shape: int, dtype: npt.DTypeLike | None = None) -> Array:
        """An uninitialised array for use within the current command only."""
        return self._scratch.take(shape, self.dtype if dtype is None else dtype)

    def persistent(self, *shape: int, dtype: npt.DTypeLike | None = None) -> Array:
        """A zeroed array of its own, for what must last from one command to a later one."""
        array: Array = self.xp.zeros(shape, dtype=self.dtype if dtype is None else dtype)
        self.persistent_bytes += array.nbytes
        return array

    def ones(self, length: int) -> Array:
        """(1, length) of ones; not to be written to."""
        if self._ones.shape[1] < length:
            self._ones = self.xp.ones((1, length), dtype=self.dtype)
        return self._ones[:, :length]

    def begin_command(self) -> None:
        """Frees the scratch memory of the command before."""
        self._scratch.begin()

    def row_blocks(self, *arrays: Array) -> Iterator[tuple[Array, ...]]:
        """The same rows of several arrays at a time, so few that they stay in the cache."""
        rows = len(arrays[0])
        size = max(1, BLOCK_ELEMENTS // max(math.prod(arrays[0].shape[1:]), 1))
        for start in range(0, rows, size):
            yield tuple(array[start : start + size] for array in arrays)

    # ---- what the host decides, and what depends on it ----

    def call(self, function: Callable[..., object], *arguments: object, **keywords: object) -> None:
        """Records a call of any function; a tape for a device refuses it."""
        self.calls.append(partial(function, *arguments, **keywords))

    def host(
        self, fill: Callable[[Array], object], *shape: int, dtype: npt.DTypeLike | None = None
    ) -> Array:
        """An array that the host fills in each run, before anything reads it.

        Args:
            fill: Called with the array; must not look at other arrays of the program, since it may
                be called before what was recorded earlier has run. Calls keep their order.
            *shape: Of the array.
            dtype: Of the array; that of the values if None.
        """
        array: Array = self.xp.zeros(shape, dtype=self.dtype if dtype is None else dtype)
        self.calls.append(partial(fill, array))
        return array

    def note(self, function: Callable[[], object]) -> None:
        """Has the host call a function in each run; like that of `host` it sees no arrays."""
        self.calls.append(function)

    def value(self, function: Callable[[], float]) -> Array:
        """(1,) float64: what the function returns in each run; see `host`."""

        def fill(array: Array) -> None:
            array[0] = function()

        return self.host(fill, 1, dtype=np.float64)

    @contextmanager
    def when(self, condition: Array) -> Iterator[None]:
        """What is recorded within runs only if the one element of an array is not 0.

        Only element-wise operations, sums and gathers may be recorded within.
        """
        outer, self.calls = self.calls, []
        try:
            yield
        finally:
            inner, self.calls = tuple(self.calls), outer

        def run_when() -> None:
            if condition.item():
                for call in inner:
                    call()

        self.calls.append(run_when)

    # ---- element by element ----

    def apply(self, function: str, *operands: Operand, out: Array) -> None:
        """out = function of the operands (broadcast), by NumPy's name for it."""
        self.calls.append(partial(getattr(self.xp, function), *operands, out=out))

    def convert(self, source: Array, out: Array) -> None:
        """out = source as another type; fractions are cut off."""
        self.calls.append(partial(self.xp.copyto, out, source, casting="unsafe"))

    def copy(self, source: Operand, out: Array) -> None:
        """out = source (broadcast)."""
        if source is out:
            return
        floats = isinstance(source, np.ndarray) and source.dtype == out.dtype == self.dtype
        if floats and np.may_share_memory(source, out):
            # Columns of the same rows: copyto would take care, with a temporary copy.
            self.calls.append(partial(self.xp.positive, source, out))
        else:
            self.calls.append(partial(self.xp.copyto, out, source))

    def fill(self, value: float, out: Array) -> None:
        """out = value."""
        self.calls.append(partial(out.fill, value))

    def add(self, a: Operand, b: Operand, out: Array) -> None:
        """out = a + b."""
        self.apply("add", a, b, out=out)

    def subtract(self, a: Operand, b: Operand, out: Array) -> None:
        """out = a - b."""
        self.apply("subtract", a, b, out=out)

    def multiply(self, a: Operand, b: Operand, out: Array) -> None:
        """out = a * b."""
        self.apply("multiply", a, b, out=out)

    def divide(self, a: Operand, b: Operand, out: Array) -> None:
        """out = a / b."""
        self.apply("divide", a, b, out=out)

    def maximum(self, a: Operand, b: Operand, out: Array) -> None:
        """out = max(a, b)."""
        self.apply("maximum", a, b, out=out)

    def minimum(self, a: Operand, b: Operand, out: Array) -> None:
        """out = min(a, b)."""
        self.apply("minimum", a, b, out=out)

    def greater(self, a: Operand, b: Operand, out: Array) -> None:
        """out = a > b; out is boolean."""
        self.apply("greater", a, b, out=out)

    def equal(self, a: Operand, b: Operand, out: Array) -> None:
        """out = a == b; out is boolean."""
        self.apply("equal", a, b, out=out)

    def exp(self, a: Array, out: Array) -> None:
        """out = e^a."""
        self.apply("exp", a, out=out)

    def log(self, a: Array, out: Array) -> None:
        """out = ln a."""
        self.apply("log", a, out=out)

    def tanh(self, a: Array, out: Array) -> None:
        """out = tanh a."""
        self.apply("tanh", a, out=out)

    def sqrt(self, a: Array, out: Array) -> None:
        """out = a^(1/2)."""
        self.apply("sqrt", a, out=out)

    def square(self, a: Array, out: Array) -> None:
        """out = a^2."""
        self.apply("square", a, out=out)

    def ceil(self, a: Array, out: Array) -> None:
        """out = the smallest whole number that is at least a."""
        self.apply("ceil", a, out=out)

    def is_positive(self, a: Array, out: Array) -> None:
        """out = 1 where a > 0, else 0; a must not be negative."""
        # Both are vector instructions, unlike a comparison that is converted to numbers.
        self.minimum(a, 1.0, out)
        self.ceil(out, out)

    def pack_signs(self, a: Array, out: Array) -> None:
        """Bit k of out[r, j] = whether a[r, 8 j + k] > 0; out: uint8, (rows, columns / 8 up).

        The output may lie in the memory of `a`.
        """
        columns, width = a.shape[1], out.shape[1]
        apart = self.scratch(*out.shape, dtype=np.uint8)
        flags: Array | None = None
        for values, packed in self.row_blocks(a, apart):
            if flags is None:
                flags = self.scratch(len(values), 8 * width, dtype=np.bool_)
                self.fill(False, flags[:, columns:])
            self.greater(values, 0.0, flags[: len(values), :columns])
            words = flags[: len(values)].view(np.uint64)
            # Each of the eight bytes, 0 or 1, is shifted to its bit of the highest byte.
            self.calls.append(partial(self.xp.multiply, words, GATHER_BITS, words))
            self.calls.append(partial(self.xp.right_shift, words, np.uint64(56), words))
            self.copy(words, packed)
        self.copy(apart, out)

    def unpack_signs(self, packed: Array, out: Array) -> None:
        """out[r, c] = 1 or 0, bit c % 8 of packed[r, c // 8]: the inverse of `pack_signs`.

        `packed` may lie in the memory of the output.
        """
        columns, width = out.shape[1], packed.shape[1]
        apart = self.scratch(*packed.shape, dtype=np.uint8)
        self.copy(packed, apart)
        bits = np.arange(256)[:, None] >> np.arange(8) & 1
        table: Array = self.xp.asarray(bits, dtype=out.dtype)
        numbers: Array | None = None
        for values, stored in self.row_blocks(out, apart):
            if numbers is None:
                numbers = self.scratch(len(stored), width, dtype=np.int64)
                whole = self.scratch(len(stored), 8 * width, dtype=out.dtype)
            self.copy(stored, numbers[: len(stored)])
            target = values if columns == 8 * width else whole[: len(stored)]
            self.take_rows(table, numbers[: len(stored)].reshape(-1), target.reshape(-1, 8))
            if target is not values:
                self.copy(target[:, :columns], values)

    def round(self, a: Array, out: Array) -> None:
        """out = the whole number nearest to a; halves go to the even one."""
        self.apply("rint", a, out=out)

    def negative(self, a: Array, out: Array) -> None:
        """out = -a."""
        self.apply("negative", a, out=out)

    # ---- products and sums ----

    def matmul(
        self, a: Array, b: Array, out: Array, *, add: bool = False, plus: Array | None = None
    ) -> None:
        """out = a b, or out += a b, or out = plus + a b."""
        if add:
            plus = out
        if out.ndim == 2 and self._is_faster_transposed(len(out), b):
            product = self.scratch(out.shape[1], len(out))
            call = bound_gemm(b.T, a.T, product) if is_mkl() else None
            self.calls.append(call or partial(self.xp.matmul, b.T, a.T, product))
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
            self.calls.append(call)
            return
        if plus is None:
            self.calls.append(partial(self.xp.matmul, a, b, out))
            return
        product = self.scratch(*out.shape)
        self.calls.append(partial(self.xp.matmul, a, b, product))
        self.add(plus, product, out)

    @staticmethod
    def _is_faster_transposed(rows: int, b: Array) -> bool:
        """Whether the library is faster with many rows and few columns than the other way round.

        MKL is not if the rows of b are contiguous, nor with very few rows of the result.
        """
        if not is_mkl():
            return 1 < rows <= FEW_ROWS
        return FEWEST_ROWS <= rows <= FEW_ROWS and b.strides[1] != b.itemsize

    def row_dot(self, a: Array, b: Array, out: Array) -> None:
        """out[r] = sum over c of a[r, c] b[r, c]; out: (rows,)."""
        self.calls.append(partial(self.xp.vecdot, a, b, out))

    def column_sum(self, a: Array, out: Array) -> None:
        """out[0, c] = sum over r of a[r, c]; out: (1, cols)."""
        self.calls.append(partial(self.xp.matmul, self.ones(len(a)), a, out))

    def column_sum_of_products(self, a: Array, b: Array, out: Array) -> None:
        """out[0, c] = sum over r of a[r, c] b[r, c]; out: (1, cols)."""
        blocks = list(self.row_blocks(a, b))
        sums = self.scratch(len(blocks), a.shape[1])
        product = self.scratch(*blocks[0][0].shape)
        for number, (x, y) in enumerate(blocks):
            self.multiply(x, y, product[: len(x)])
            self.column_sum(product[: len(x)], sums[number : number + 1])
        self.column_sum(sums, out)

    def row_sum(self, a: Array, out: Array) -> None:
        """out[r, 0] = sum over c of a[r, c]; out: (rows, 1)."""
        self.calls.append(partial(self.xp.add.reduce, a, axis=1, out=out, keepdims=True))

    def sum(self, a: Array, axis: int, out: Array) -> None:
        """out = sum of a along an axis."""
        self.calls.append(partial(self.xp.add.reduce, a, axis=axis, out=out))

    def row_maximum(self, a: Array, out: Array) -> None:
        """out[r, 0] = max over c of a[r, c]; out: (rows, 1)."""
        self.calls.append(partial(self.xp.maximum.reduce, a, axis=1, out=out, keepdims=True))

    # ---- natural gradient ----

    def precondition(self, natural: OnlineNaturalGradient, x: Array) -> Array:
        """Preconditions the rows of x in place, but for a factor, which it returns: (1,)."""
        factor: Array = self.xp.zeros(1, dtype=self.dtype)

        def precondition() -> None:
            factor[0] = natural.precondition(x)

        self.calls.append(precondition)
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
        spread: tuple[TimeSplice, Array] | None = None,
    ) -> None:
        """Adds the natural gradient of an affine map; see `AffinePreconditioner.record`."""
        sides.record_calls(self, xs, dy, linear, bias, first=first, spread=spread)

    # ---- random numbers ----

    def random_uniform(self, rng: np.random.Generator, out: Array) -> None:
        """out = numbers that are uniform in [0, 1), others in each run; out: float32."""
        self.calls.append(partial(_fill_uniform, rng, out))

    # ---- gathering ----

    def take_rows(self, source: Array, rows: Array, out: Array) -> None:
        """out[i] = source[rows[i]]; rows: int64 within range; out contiguous."""
        # mode="clip" because the default buffers the output.
        self.calls.append(partial(source.take, rows, 0, out, "clip"))

    def range_sum(self, source: Array, ranges: Array, out: Array) -> bool:
        """Records out[i] = sum of source[r], begin <= r < end, with (begin, end) = ranges[i].

        Returns:
            Whether it did: if not, the ranges are to be summed up one by one.
        """
        return False

    def take_columns(self, source: Array, columns: Array, out: Array) -> None:
        """out[:, i] = source[:, columns[i]]; columns: int64 within range; out contiguous."""
        self.calls.append(partial(source.take, columns, 1, out, "clip"))

    def put_rows(self, values: Array, rows: Array, out: Array) -> None:
        """out[rows[i]] = values[i]; rows: int64 within range, none twice."""
        self.calls.append(partial(out.__setitem__, rows, values))


def _fill_uniform(rng: np.random.Generator, out: Array) -> None:
    if out.flags.c_contiguous and out.dtype == np.float32:
        rng.random(dtype=np.float32, out=out)
    else:
        out[...] = rng.random(out.shape, dtype=np.float32)
