"""The parts of a computation that are values: what the rows of a matrix mean, and where it lies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, overload

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.values import ByFields, frozen, is_frozen, is_masked
from numpy.typing import NDArray

from nnet3_computation.arrays import IntArray, as_table, frozen_array, same
from nnet3_computation.errors import ComputationError

Bytes = npt.NDArray[np.int64]

_MOST = np.iinfo(np.int64).max

NOWHERE = -1
"""The offset of a matrix that has no place."""


def _offsets(value: Any) -> Bytes:
    """Returns offsets as a read-only int64 array."""
    try:
        raw = np.asarray(value)
    except ValueError as error:  # parts of different lengths
        raise ComputationError(f"offsets of a memory plan must be a list: {error}") from error
    if is_masked(value):
        raise ComputationError("offsets of a memory plan must not be a masked array")
    if raw.ndim != 1 or (raw.size and raw.dtype.kind not in "iu"):
        raise ComputationError(
            f"offsets of a memory plan must be a list of integers (got {raw.shape} {raw.dtype})"
        )
    if raw.dtype.kind == "u" and raw.size and int(raw.max()) > _MOST:
        raise ComputationError(f"offsets of a memory plan must fit in 64 bits (got {raw.max()})")
    if raw.dtype == np.int64 and is_frozen(raw):
        return raw
    return frozen(raw.astype(np.int64))


@attrs.frozen(kw_only=True, repr=False, eq=False)
class MemoryPlan(ByFields):
    """The places of a computation's matrices in one arena.

    Attributes:
        offsets: (M,) int64 bytes; -1 for matrices that are never allocated. Matrices that are
            allocated at the same time do not overlap. A matrix that takes over the memory of
            another (SwapMatrix) has the offset of the other.
        compressed_offsets: (M,) int64 bytes: where the compressed form of a matrix lies between
            CompressMatrix and DecompressMatrix; -1 for matrices that are never compressed. The
            elements themselves have no memory then, and afterwards lie at `offsets` again.
        arena_bytes: Size of the arena.
        lower_bound_bytes: The most that is held during a command, sizes rounded up to the
            alignment: no plan needs less. While a matrix is compressed or decompressed it has both
            forms; `peak_bytes` counts one.

    Raises:
        ComputationError: The offsets are not integers, or lie outside of the arena.
    """

    offsets: Bytes = attrs.field(converter=_offsets, eq=np.ndarray.tobytes)
    compressed_offsets: Bytes = attrs.field(converter=_offsets, eq=np.ndarray.tobytes)
    arena_bytes: int
    lower_bound_bytes: int

    def __attrs_post_init__(self) -> None:
        if len(self.offsets) != len(self.compressed_offsets):
            raise ComputationError(
                f"a memory plan must have as many compressed_offsets as offsets (got "
                f"{len(self.compressed_offsets)} and {len(self.offsets)})"
            )
        for name in ("arena_bytes", "lower_bound_bytes"):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                raise ComputationError(f"{name} must be a number of bytes (got {size!r})")
        for name in ("offsets", "compressed_offsets"):
            array = getattr(self, name)
            outside = (array < NOWHERE) | (array > self.arena_bytes)
            if outside.any():
                matrix = int(outside.argmax())
                raise ComputationError(
                    f"{name}[{matrix}] = {array[matrix]} is no place in an arena of "
                    f"{self.arena_bytes} bytes"
                )


NODE, N, T, X = 0, 1, 2, 3
"""Columns of an array of cindexes."""


def cindex_table(value: Any) -> IntArray:
    """Returns `value` as a read-only (rows, 4) int32 array."""
    array = value if type(value) is np.ndarray and is_frozen(value) else None
    if array is None or array.dtype != np.int32:  # there are thousands, most of them int32
        array = as_table(value, 4)
    if array.ndim != 2 or array.shape[1] != 4:
        raise ComputationError(f"cindexes must have the shape (rows, 4) (got {array.shape})")
    return array


@attrs.frozen(kw_only=True, eq=False)
class MatrixDebugInfo:
    """The cindexes that the rows of a matrix belong to.

    If all sequences of a minibatch have the same frames, only one is stored: `pattern` has the rows
    of one sequence, and each of them stands for one row of every sequence in `sequences`. The full
    list is `cindexes`.

    Attributes:
        is_deriv: Whether the matrix holds derivatives, not values.
        pattern: (rows, 4) int32, columns node, n, t, x.
        sequences: (S,) int32, the n of every sequence; empty if `pattern` is the full list.
        block: The number of pattern rows in a block. A block of the first sequence comes first,
            then the same block of each other sequence, then the next block of the first; see
            `shortcut`.

    Raises:
        ComputationError: The pattern is not a table of cindexes, or has no whole number of blocks.
    """

    is_deriv: bool = False
    pattern: IntArray = attrs.field(converter=cindex_table)
    sequences: IntArray = attrs.field(default=(), converter=frozen_array)
    block: int = 1

    def __attrs_post_init__(self) -> None:
        rows = len(self.pattern)
        if self.block < 1 or rows % self.block:
            raise ComputationError(f"{rows} rows are no multiple of a block of {self.block}")

    @property
    def node(self) -> int:
        """The node of the first row; -1 for a matrix without debug info.

        All rows have the same node, unless passes have put several matrices together.
        """
        return int(self.pattern[0, NODE]) if len(self.pattern) else -1

    @property
    def num_rows(self) -> int:
        """Number of rows of the matrix."""
        return len(self.pattern) * max(1, len(self.sequences))

    def check_rows(self, matrix: int, rows: int) -> None:
        """Checks that this describes a matrix; for values read from a file.

        Args:
            matrix: The number of the matrix.
            rows: Its number of rows.

        Raises:
            ComputationError: This stands for another number of rows, and not for none; or a node is
                negative.
        """
        if len(self.pattern) and self.num_rows != rows:
            raise ComputationError(
                f"the debug info of matrix {matrix} is of {self.num_rows} rows, the matrix has "
                f"{rows}"
            )
        if len(self.pattern) and int(self.pattern[:, NODE].min()) < 0:
            raise ComputationError(f"the debug info of matrix {matrix} names a negative node")

    @property
    def cindexes(self) -> IntArray:
        """The cindex of each row: (num_rows, 4) int32, columns node, n, t, x; read-only."""
        if not len(self.sequences):
            return self.pattern
        blocks = self.pattern.reshape(-1, 1, self.block, 4)
        rows = np.repeat(blocks, len(self.sequences), axis=1)
        rows[..., N] = self.sequences[:, None]
        return frozen(rows.reshape(-1, 4))

    def cindexes_of(self, begin: int, end: int) -> IntArray:
        """Returns `cindexes[begin:end]`; it does not compute the other cindexes."""
        if not len(self.sequences):
            return self.pattern[begin:end]
        rows = np.arange(begin, end)
        blocks, rest = np.divmod(rows, self.block * len(self.sequences))
        sequence, place = np.divmod(rest, self.block)
        cindexes = self.pattern[blocks * self.block + place]
        cindexes[:, N] = self.sequences[sequence]
        return frozen(cindexes)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, MatrixDebugInfo):
            return NotImplemented
        return self.is_deriv == other.is_deriv and same(self.cindexes, other.cindexes)

    def __hash__(self) -> int:
        return hash((self.is_deriv, self.num_rows, self.node))


NO_DEBUG_INFO = MatrixDebugInfo(pattern=())
"""Stands for a matrix without debug info, such as the empty one."""


@attrs.frozen(kw_only=True, eq=False)
class DebugInfoOfRows(Sequence[MatrixDebugInfo]):
    """The debug info of matrices that hold ranges of rows; the first matrix has none.

    There are thousands of matrices, and often nobody needs an entry. So the first access makes all
    entries. They are right by construction, and skip conversion and checks.

    Attributes:
        cindexes: (rows, 4) int32, read-only: all rows.
        begin: (M - 1,) the first row of each matrix but the first.
        rows: (M - 1,) its number of rows.
        block: (M - 1,) its block; see `MatrixDebugInfo`.
        is_deriv: (M - 1,) whether it holds derivatives.
        sequences: (S,) int32, read-only; see `MatrixDebugInfo`.
    """

    cindexes: IntArray
    begin: IntArray
    rows: IntArray
    block: IntArray
    is_deriv: NDArray[np.bool_]
    sequences: IntArray

    @cached_property
    def _entries(self) -> tuple[MatrixDebugInfo, ...]:
        cls: Any = MatrixDebugInfo
        infos = [*map(cls.__new__, repeat(cls, len(self.begin)))]
        ranges = map(slice, self.begin.tolist(), (self.begin + self.rows).tolist())
        columns: tuple[tuple[Any, Iterable[Any]], ...] = (
            (cls.is_deriv, self.is_deriv.tolist()),
            (cls.pattern, map(self.cindexes.__getitem__, ranges)),
            (cls.sequences, repeat(self.sequences)),
            (cls.block, self.block.tolist()),
        )
        for slot, values in columns:  # filled by themselves, as the class is frozen
            deque(map(slot.__set__, infos, values), maxlen=0)
        return NO_DEBUG_INFO, *infos

    def __len__(self) -> int:
        return 1 + len(self.begin)

    @overload
    def __getitem__(self, index: int) -> MatrixDebugInfo: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[MatrixDebugInfo, ...]: ...

    def __getitem__(self, index: int | slice) -> MatrixDebugInfo | tuple[MatrixDebugInfo, ...]:
        return self._entries[index]

    def __iter__(self) -> Iterator[MatrixDebugInfo]:
        return iter(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | DebugInfoOfRows) and self._entries == tuple(other)

    __hash__ = None  # type: ignore[assignment]
