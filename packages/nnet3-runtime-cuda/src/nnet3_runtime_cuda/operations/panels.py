"""Products of few rows with parameters that lie in narrow panels.

A BLAS library copies the factors of a product to buffers. For few rows this takes longer than the
arithmetic. For AVX-512, OpenBLAS has functions for small products, of at most MOST_WORK
multiplications, that read the factors in place. So parameters that never change, or that take part
in many products before they change, are laid out in panels of WIDTH columns, one after another in
memory. Products are cut into small ones, and one operation on stacks (on the processor a call of
`numpy.matmul`) computes them all:

    out[rows of piece p, columns of panel k] = x[rows of piece p] panels[k]

Libraries without such functions are slower with panels: see `Tape.gains_by_panels`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnet3_runtime_cuda.operations.protocol import Array, Tape
from nnet3_runtime_cuda.operations.scratch import PRODUCT_WORK, part_of

WIDTH = 64
"""Columns of a panel: four vectors of AVX-512."""

MOST_WORK = 10**6
"""The most multiplications of a small product."""

ROWS_AT_ONCE = 4
"""Small products with a multiple of this many rows take 10 to 20 % less time for each row."""

MOST_INNER = 1024
"""The most terms of a sum in a small product: with more, pieces would have too few rows."""

BYTES_AT_ONCE = 1 << 20
"""Bytes of parameters that are multiplied with all rows before the next parameters are. So the rows
after the last whole piece find the parameters in a cache. Few networks fit into a cache as a
whole."""

ROWS = range(2, 385)
"""The numbers of rows for which panels make products faster."""


class Panels:
    """A (inner, columns) matrix as panels.

    Attributes:
        groups: One for the panels of WIDTH columns, and one for the remaining columns. Each has its
            first column, and pairs of a slice of the inner dimension and a read-only stack
            (panels, terms, width).
    """

    def __init__(self, groups: tuple[tuple[int, tuple[tuple[slice, Array], ...]], ...]) -> None:
        self.groups = groups

    @classmethod
    def of(cls, matrix: Array) -> Panels:
        """Copies a (inner, columns) matrix."""
        panels = cls.within(np.empty(matrix.size, matrix.dtype), matrix.shape)
        for source, stack in panels._pairs(matrix):
            stack[:] = source
            stack.flags.writeable = False
        return panels

    @classmethod
    def within(cls, memory: Array, shape: tuple[int, int]) -> Panels:
        """Panels in memory (inner * columns,), for a matrix that `record_copy` will set."""
        inner, columns = shape
        whole = columns - columns % WIDTH
        groups, place = [], 0
        for start, end, width in ((0, whole, WIDTH), (whole, columns, columns % WIDTH)):
            parts = []
            for terms in _even_slices(inner, MOST_INNER) if start < end else ():
                size = (terms.stop - terms.start) * (end - start)
                stack = memory[place : place + size].reshape(-1, terms.stop - terms.start, width)
                parts.append((terms, stack))
                place += size
            if parts:
                groups.append((start, tuple(parts)))
        return cls(tuple(groups))

    def _pairs(self, matrix: Array, start: int = 0) -> Iterator[tuple[Array, Array]]:
        """Pairs of stacks: columns of a matrix from `start` on, and the panels that hold them."""
        for first, parts in self.groups:
            for terms, stack in parts:
                _, inner, width = stack.shape
                some = _panels_of(stack, start - first, start + matrix.shape[1] - first)
                if some.start == some.stop:
                    continue
                place = first - start + some.start * width
                source = matrix[terms, place : place + (some.stop - some.start) * width]
                yield source.reshape(inner, -1, width).transpose(1, 0, 2), stack[some]

    def places(self, start: int, end: int) -> Iterator[slice]:
        """The places of columns in the memory of the panels.

        Args:
            start: A multiple of WIDTH.
            end: A multiple of WIDTH, or the number of columns.

        Yields:
            For each stack that has some of the columns, their elements in that memory.
        """
        place = 0
        for first, parts in self.groups:
            for _, stack in parts:
                some = _panels_of(stack, start - first, end - first)
                if some.start < some.stop:
                    size = stack[0].size
                    yield slice(place + some.start * size, place + some.stop * size)
                place += stack.size

    def record_copy(self, tape: Tape, matrix: Array, start: int = 0) -> None:
        """Records a copy of columns of a matrix to panels within memory.

        Args:
            tape: Records the copies.
            matrix: (inner, columns): the columns from start on, of whole panels or up to the end.
            start: A multiple of WIDTH.
        """
        for source, stack in self._pairs(matrix, start):
            tape.copy(source, stack)

    def record(
        self, tape: Tape, x: Array, out: Array, *, add: bool = False, plus: Array | None = None
    ) -> None:
        """Records out = x M, or out += x M, or out = plus + x M, where M is the matrix in panels.

        Args:
            tape: Records the arithmetic.
            x: (rows, inner).
            out: (rows, columns).
            add: Whether to add to the contents of `out`.
            plus: (rows, columns), added.
        """
        plus = out if add else plus
        work = out.size * x.shape[1] // PRODUCT_WORK
        for rows in tape.shared(len(out), work):
            target = out[rows]
            added: Array | None = target
            if plus is not out:
                added = None if plus is None else part_of(plus, rows, -2, out.shape)
            self._record_rows(tape, x[rows], target, added)

    def _record_rows(self, tape: Tape, x: Array, out: Array, plus: Array | None) -> None:
        """Records the rows of one thread."""
        if len(x) == 1:
            # Libraries take one row for a vector, and are slower with it than with two rows.
            rows, products = tape.scratch(2, x.shape[1]), tape.scratch(2, out.shape[1])
            tape.copy(x, rows)
            self._record_rows(tape, rows, products, None)
            if plus is None:
                tape.copy(products[:1], out)
            else:
                tape.add(plus, products[:1], out)
            return
        for first, parts in self.groups:
            count, _, width = parts[0][1].shape
            columns = slice(first, first + count * width)
            target = out[:, columns]
            product = tape.scratch(*target.shape) if plus is out else target
            for terms, panels in parts:
                into = tape.scratch(*target.shape) if terms.start else product
                for stack in stacks(x[:, terms], panels, into):
                    tape.small_products(*stack)
                if terms.start:
                    tape.add(product, into, product)
            if plus is not None:
                tape.add(plus[:, columns], product, target)


def _panels_of(stack: Array, start: int, end: int) -> slice:
    """The panels of a stack for columns `start` to `end`, counted from its first column."""
    count, _, width = stack.shape
    return slice(*(min(max(column // width, 0), count) for column in (start, end)))


def _even_slices(size: int, most: int) -> Iterator[slice]:
    """Slices of about equal length, at most `most`, that cover `range(size)`."""
    length = -(-size // max(1, -(-size // most)))
    for start in range(0, size, max(length, 1)):
        yield slice(start, min(start + length, size))


def stacks(x: Array, panels: Array, out: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Operands of small products: stacks of pieces of rows, and of the rows behind the last piece.

    Args:
        x: (rows, inner).
        panels: (panels, inner, width).
        out: (rows, panels * width).

    Yields:
        (pieces, height, inner), (panels, 1, inner, width), (panels, pieces, height, width)
    """
    count, inner, width = panels.shape
    height = piece_height(len(x), MOST_WORK // (inner * width))
    whole = len(x) - len(x) % height
    group = count if whole == len(x) else max(1, BYTES_AT_ONCE // panels[0].nbytes)
    for first in range(0, count, group):
        some = panels[first : first + group]
        columns = slice(first * width, (first + len(some)) * width)
        for start, end, rows in ((0, whole, height), (whole, len(x), len(x) % height)):
            if start < end:
                target = out[start:end, columns].reshape(-1, rows, len(some), width)
                pieces = x[start:end].reshape(-1, rows, inner)
                yield pieces, some[:, None], target.transpose(2, 0, 1, 3)


def piece_height(rows: int, most: int) -> int:
    """The number of rows of each piece, at most `most`, for pieces of about equal size."""
    if most < ROWS_AT_ONCE:
        return max(1, min(most, rows))
    pieces = -(-rows // (most - most % ROWS_AT_ONCE))
    return min(rows, -(-rows // (pieces * ROWS_AT_ONCE)) * ROWS_AT_ONCE)
