"""The operations on arrays that every machine has and a kernel may record.

Kernels read like plain array code, but their calls record and do not compute. Slicing, reshaping
and every decision happen once, when a computation is lowered; a run repeats the recorded
operations. Each machine records on its own tape: the processor's holds calls of NumPy (`cpu.tape`),
a device's holds operations as data, from which it makes kernels (`cuda.tape`).

A run on a device has no steps on the host, so a kernel reads values only through these operations.
The host makes the decisions that do not depend on values (which minibatches record statistics), by
`host` and `value`.

Arrays are NumPy's on every machine; on a device they are shadows, which can be sliced but not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from nnet3_runtime_cuda.operations.gradients import ColumnBlocks, FisherEstimate, Side
from nnet3_runtime_cuda.operations.scratch import Scratch

Array = npt.NDArray[Any]
"""An array of NumPy; on a device, the shadow of an array."""
Call = Callable[[], object]
"""An operation bound to its operands."""
Operand = Array | float
"""The operand of an operation: an array, or a number for all elements."""
_T = TypeVar("_T")


class Tape(Protocol):
    """Records operations on arrays, in order.

    Every operation names its output array; none returns a value. Operands may be the output array
    itself, but not another array that overlaps it.

    Attributes:
        persistent_bytes: Size of the memory that `persistent` gave out.
        dtype: The type of the values that pass through the network.
        cache_scale: The size of the cache for which work is cut up, relative to that of a processor
            core.
        gains_by_stacks: Whether stacks of products make convolutions faster than patches, which
            are products of larger matrices.
        preconditions_rows: Whether the natural gradient preconditions narrow rows; if not, it
            preconditions whole gradients where that is less work.
    """

    persistent_bytes: int
    dtype: np.dtype[Any]
    cache_scale: ClassVar[int]
    gains_by_stacks: ClassVar[bool]
    preconditions_rows: ClassVar[bool]
    _scratch: Scratch

    @property
    def threads(self) -> int:
        """The number of threads of the processor that share the recorded calls."""
        return 1

    # ---- what pays: nothing, unless a machine says so ----

    def uses_tiles(self) -> bool:
        """Whether to compute convolutions by tiles: fewer products, more passes over memory."""
        return False

    def gains_by_panels(self, rows: int) -> bool:
        """Whether a product with `rows` rows is faster with its factor in panels (`Panels`)."""
        return False

    def gains_by_transposing(self, rows: int, parameters: Array) -> bool:
        """Whether products with `rows` rows are faster with (out, in) parameters transposed."""
        return False

    # ---- memory ----

    def scratch(self, *shape: int, dtype: npt.DTypeLike | None = None) -> Array:
        """An uninitialised array for use within the current command only."""
        return self._scratch.take(shape, self.dtype if dtype is None else dtype)

    def lend(self, memory: Array) -> None:
        """Lends unused memory of the program to the current command as scratch.

        Args:
            memory: One-dimensional and contiguous; its content is lost.
        """
        self._scratch.lend(memory)

    def persistent(self, *shape: int, dtype: npt.DTypeLike | None = None) -> Array:
        """A new zeroed array, for values that outlast the current command."""

    def ones(self, length: int) -> Array:
        """(1, length) of ones; read-only."""

    def passing(self) -> AbstractContextManager[None]:
        """A context. Scratch arrays taken within it are valid only until its end."""
        return self._scratch.passing()

    # ---- work for several threads ----

    def independent(self, items: Sequence[_T]) -> Iterator[_T]:
        """The items, for a loop whose rounds may run on several threads at the same time.

        A round must not access memory that another round writes. A scratch array belongs to the
        round that takes it. Each thread runs neighbouring rounds, in order.
        """

    def shared(self, length: int, work: int) -> Iterator[slice]:
        """Slices that cover a range, for a loop whose rounds may run at the same time.

        See `independent`. There is one slice if there is one thread, or little work.

        Args:
            length: Length of the range.
            work: Number of elements that are computed.
        """

    def rows_per_sum(self, array: Array, *, arrays: int = 1) -> int:
        """The number of rows of a block, where blocks of rows are summed up in turn.

        Args:
            array: The array that is summed up.
            arrays: Number of arrays of this size that are in use meanwhile.
        """

    def row_blocks(self, *arrays: Array, rows: int | None = None) -> Iterator[tuple[Array, ...]]:
        """Blocks of the same rows of several arrays, small enough to stay in the cache.

        The rounds of the loop are `independent`.

        Args:
            *arrays: Arrays with equal numbers of rows.
            rows: Rows of a block; the machine chooses if None.
        """

    # ---- values and decisions of the host ----

    def host(
        self, fill: Callable[[Array], object], *shape: int, dtype: npt.DTypeLike | None = None
    ) -> Array:
        """An array that the host fills in each run, before anything reads it.

        Args:
            fill: Called with the array. It must not read other arrays of the program, because it
                may run before operations that were recorded earlier. Calls of the host keep their
                order.
            *shape: Shape of the array.
            dtype: Type of the array; that of the values if None.
        """

    def note(self, function: Callable[[], object]) -> None:
        """Lets the host call a function in each run, which must not read arrays; see `host`."""

    def value(self, function: Callable[[], float]) -> Array:
        """(1,) float64, the function's result in each run; see `host`."""

    def when(self, condition: Array) -> AbstractContextManager[None]:
        """A context. Calls recorded within it run only if the one element of `condition` is not 0.

        Only element-wise operations, sums and gathers may be recorded within.
        """

    def within_range(self, record: Callable[[np.dtype[Any]], None], result: Array) -> None:
        """Records operations whose squares or products may overflow, so that they do not.

        A processor computes in the precision of the values, and once more in double precision if
        the result is not finite; a device always computes in double precision.

        Args:
            record: Records the operations, with sums in scratch of the given type. It sets `result`
                and may be called twice.
            result: The array that is finite unless something has overflowed.
        """

    # ---- element by element ----

    def apply(self, function: str, *operands: Operand, out: Array) -> None:
        """out = the function with this NumPy name of the operands (broadcast)."""

    def copy(self, source: Operand, out: Array) -> None:
        """out = source (broadcast), as the type of out; fractions are truncated."""

    def fill(self, value: float, out: Array) -> None:
        """out = value."""

    def add_scaled(self, a: Array, factor: float, out: Array) -> None:
        """out += factor a."""
        for values, target in self.row_blocks(a, out):
            term = self.scratch(*target.shape)
            self.multiply(values, factor, term)
            self.add(target, term, target)

    def is_positive(self, a: Array, out: Array) -> None:
        """out = 1 where a > 0, else 0; a must not be negative."""

    def pack_signs(self, a: Array, out: Array) -> None:
        """Bit k of out[r, j] = whether a[r, 8 j + k] > 0; out: uint8, (rows, columns / 8 up).

        The output may lie in the memory of `a`.
        """

    def unpack_signs(self, packed: Array, out: Array) -> None:
        """out[r, c] = 1 or 0, bit c % 8 of packed[r, c // 8]: the inverse of `pack_signs`.

        `packed` may lie in the memory of the output.
        """

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
        """out = a b, or out += a b, or out = plus + a b; also of stacks of matrices.

        The matrices of a stack may share the factor b, (inner, columns).
        """

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

    def small_products(self, a: Array, b: Array, out: Array) -> None:
        """out[i] = a[i] b[i] for stacks of matrices (broadcast), each too small for threads."""

    def row_dot(self, a: Array, b: Array, out: Array) -> None:
        """out[r] = sum over c of a[r, c] b[r, c]; out: (rows,).

        If `out` is float64, so are products and sums; the same holds for sums of columns.
        """

    def column_sum(self, a: Array, out: Array) -> None:
        """out[0, c] = sum over r of a[r, c]; out: (1, cols)."""

    def count_positive(self, a: Array, out: Array) -> None:
        """out[0, c] = number of positive elements of a[:, c]; out: (1, cols)."""

    def column_sum_of_products(self, a: Array, b: Array, out: Array) -> None:
        """out[0, c] = sum over r of a[r, c] b[r, c]; out: (1, cols)."""

    def row_sum(self, a: Array, out: Array) -> None:
        """out[r, 0] = sum over c of a[r, c]; out: (rows, 1)."""

    def sum(self, a: Array, axis: int, out: Array) -> None:
        """out = sum of a along an axis."""

    def row_maximum(self, a: Array, out: Array) -> None:
        """out[r, 0] = max over c of a[r, c]; out: (rows, 1)."""

    # ---- natural gradient ----

    def precondition(self, estimate: FisherEstimate, x: Array) -> Array:
        """Preconditions the rows of x in place without scaling them; returns the scale, (1,)."""

    def side(self, estimate: FisherEstimate, x: ColumnBlocks) -> Side:
        """One side of a gradient, with memory for H = X W^T."""

    def project(self, sides: Sequence[Side]) -> Array:
        """H = X W^T of sides; returns the product of the scales that keep norms: of one element.

        An estimate that no minibatch has changed yet begins with this one.
        """

    def update_estimates(self, sides: Sequence[Side]) -> None:
        """Changes the estimates by the rows of sides, where the host says so."""

    # ---- random numbers ----

    def random_uniform(self, rng: np.random.Generator, out: Array) -> None:
        """out = random numbers, uniform in [0, 1), new ones in each run; out: float32."""

    # ---- gathering ----

    def take_rows(self, source: Array, rows: Array, out: Array) -> None:
        """out[i] = source[rows[i]]; rows: int64 within range; out contiguous."""

    def range_sum(
        self, source: Array, ranges: Array, out: Array, squares: Array | None = None
    ) -> bool:
        """Records out[i] = sum of source[r], begin <= r < end, with (begin, end) = ranges[i].

        And squares[i] = the sum of the squares of source[r].

        Returns:
            Whether it was recorded; if not, the caller must sum up the ranges one by one.
        """
        return False

    def take_columns(self, source: Array, columns: Array, out: Array) -> None:
        """out[:, i] = source[:, columns[i]]; columns: int64 within range; out contiguous."""

    def put_rows(self, values: Array, rows: Array, out: Array) -> None:
        """out[rows[i]] = values[i]; rows: int64 within range, none twice."""

    # ---- the program, for lowering ----

    @property
    def scratch_bytes(self) -> int:
        """Size of the scratch memory."""
        return self._scratch.nbytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded since the last `take`."""

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Uninitialised memory of the program."""

    def begin_command(self) -> None:
        """Frees the scratch memory of the previous command."""
        self._scratch.begin()

    def take(self) -> tuple[Call, ...]:
        """The calls recorded since the last `take`."""

    def run(self) -> None:
        """Runs the recorded calls."""
