"""What the rows of a matrix stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import numpy as np

from nnet3_compiler.arrays import IntArray, freeze
from nnet3_compiler.arrays.read_only import as_table, frozen_array, same
from nnet3_compiler.errors import ComputationError

NODE, N, T, X = 0, 1, 2, 3
"""Columns of an array of cindexes."""


def cindex_table(value: Any) -> IntArray:
    """Returns `value` as a read-only (rows, 4) int32 array."""
    array = value if type(value) is np.ndarray and not value.flags.writeable else None
    if array is None or array.dtype != np.int32:  # there are thousands of these: most are ready
        array = as_table(value, 4)
    if array.ndim != 2 or array.shape[1] != 4:
        raise ComputationError(f"cindexes must have the shape (rows, 4) (got {array.shape})")
    return array


@attrs.frozen(kw_only=True, eq=False)
class MatrixDebugInfo:
    """The cindexes that the rows of a matrix belong to.

    A minibatch of sequences that all have the same frames is stored once: `pattern` are the rows of
    one sequence, and each of them stands for one row per member of `sequences`. The full list is
    `cindexes`.

    Attributes:
        is_deriv: Whether the matrix holds derivatives, not values.
        pattern: (rows, 4) int32, columns node, n, t, x.
        sequences: (S,) int32, the n of every sequence; empty if `pattern` is the full list.
        block: So many rows of the pattern follow one another for each sequence, then for the next,
            before the following rows of the pattern begin; see `shortcut`.

    Raises:
        ComputationError: The pattern is no table of cindexes, or has no whole number of blocks.
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
        """The node of the first row; -1 if nothing is known of the matrix.

        All rows have the same node, unless passes have put several matrices together.
        """
        return int(self.pattern[0, NODE]) if len(self.pattern) else -1

    @property
    def num_rows(self) -> int:
        """Number of rows of the matrix."""
        return len(self.pattern) * max(1, len(self.sequences))

    def check_rows(self, matrix: int, rows: int) -> None:
        """Checks that this describes a matrix; for what was read from outside.

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
        return freeze(rows.reshape(-1, 4))

    def cindexes_of(self, begin: int, end: int) -> IntArray:
        """Returns `cindexes[begin:end]` without making the others."""
        if not len(self.sequences):
            return self.pattern[begin:end]
        rows = np.arange(begin, end)
        blocks, rest = np.divmod(rows, self.block * len(self.sequences))
        sequence, place = np.divmod(rest, self.block)
        cindexes = self.pattern[blocks * self.block + place]
        cindexes[:, N] = self.sequences[sequence]
        return freeze(cindexes)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, MatrixDebugInfo):
            return NotImplemented
        return self.is_deriv == other.is_deriv and same(self.cindexes, other.cindexes)

    def __hash__(self) -> int:
        return hash((self.is_deriv, self.num_rows, self.node))


def debug_info_of_rows(
    cindexes: IntArray,
    rows: Iterable[tuple[int, int, int, bool]],
    sequences: IntArray,
) -> Iterator[MatrixDebugInfo]:
    """Yields debug info of matrices that hold ranges of rows.

    There is one for each of thousands of matrices, so what is right by construction is not
    converted and checked again.

    Args:
        cindexes: (rows, 4) int32, read-only: all rows.
        rows: For each matrix its first row, its number of rows, its block and whether it holds
            derivatives.
        sequences: (S,) int32, read-only: see `MatrixDebugInfo`.
    """
    new = MatrixDebugInfo.__new__
    put = object.__setattr__  # the class is frozen
    for begin, count, block, is_deriv in rows:
        info = new(MatrixDebugInfo)
        put(info, "is_deriv", is_deriv)
        put(info, "pattern", cindexes[begin : begin + count])
        put(info, "sequences", sequences)
        put(info, "block", block)
        yield info


NO_DEBUG_INFO = MatrixDebugInfo(pattern=())
"""Stands for a matrix of which nothing is known, such as the empty one."""
