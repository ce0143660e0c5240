"""Pass: derivatives outside of a range of times are taken to be zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from nnet3_computation import ComputationError, analysis, arrays, computation
from nnet3_computation import commands as c
from nnet3_descriptors.components import ComponentProperties as Property

from nnet3_optimizer.draft import Draft, Edit, drop_unused_memos, without_unused_matrices

_ALL_TIMES = (-(2**31), 2**31 - 1)


def limit_derivative_times(
    draft: Draft,
    min_deriv_time: int | None = None,
    max_deriv_time: int | None = None,
    max_deriv_time_relative: int | None = None,
) -> Draft:
    """Leaves out commands and rows that only compute derivatives outside of a range of times.

    Recurrent networks are trained on chunks with context on both sides; derivatives need not go far
    into the context. Results change: a derivative at such a time counts as zero.

    1. The draft is as the compiler made it: matrices are allocated with zeros, and their debug
       info says which rows have which t, and which matrices hold derivatives.
    2. A derivative row outside of the range is neither read nor written, so it stays zero. A
       command is narrowed to the rows from its first to its last row inside the range; an entry of
       a list becomes -1 if it names a row outside. If there are rows outside between those (of
       sequences one after the other), a copy or sum of matrices becomes one of rows, and a sum of
       ranges several.
    3. A Backprop is narrowed like its output derivative if the component is simple and has no memo;
       without rows it is removed, and so is its memo unless StoreStats uses it. All others stay.
    4. Inputs, outputs and values keep their size; derivative matrices may then be made smaller by
       `trim_matrices`.

    Before::

        m1 = 4 x 4, value of input: (0,0:3)
        m2 = 4 x 4, value of output: (0,0:3)
        m3 = 4 x 4, deriv of output: (0,0:3)
        m4 = 4 x 4, deriv of input: (0,0:3)
        m1 = accept input
        m2 = zeros
        m4 = zeros
        m2 = affine.propagate(m1)
        provide output = m2
        segment end
        m3 = accept output
        m4 = affine.backprop(m3, input m1)
        provide input = m4
        free m1
        free m3

    After, with min_deriv_time = 2::

        m1 = 4 x 4, value of input: (0,0:3)
        m2 = 4 x 4, value of output: (0,0:3)
        m3 = 4 x 4, deriv of output: (0,0:3)
        m4 = 4 x 4, deriv of input: (0,0:3)
        m1 = accept input
        m2 = zeros
        m4 = zeros
        m2 = affine.propagate(m1)
        provide output = m2
        segment end
        m3 = accept output
        m4(2:3, :) = affine.backprop(m3(2:3, :), input m1(2:3, :))
        provide input = m4
        free m1
        free m3

    Args:
        draft: The draft.
        min_deriv_time: The first t of derivatives, or None.
        max_deriv_time: The last t of derivatives, or None.
        max_deriv_time_relative: The last t, counted from the largest t of the outputs; used instead
            of max_deriv_time if it is not None.

    Raises:
        ComputationError: There is no debug info, or the range is empty.
    """
    low, high = _ALL_TIMES
    low = low if min_deriv_time is None else min_deriv_time
    high = high if max_deriv_time is None else max_deriv_time
    if not _has_backward_pass(draft):
        return draft
    if len(draft.debug_info) != len(draft.matrices):
        raise ComputationError("limiting the times of derivatives needs debug info")
    if max_deriv_time_relative is not None:
        high = _last_output_time(draft) + max_deriv_time_relative
    if low > high:
        raise ComputationError(f"no derivative is left between t = {low} and t = {high}")
    return _Limiter(draft, low, high).run()


def _has_backward_pass(draft: Draft) -> bool:
    """Whether derivatives are accepted, which commands after the last segment do."""
    ends = draft.positions(c.NoOperationMarker.OPCODE)
    accepts = draft.positions(c.AcceptInput.OPCODE)
    return len(ends) > 0 and bool((accepts > ends[-1]).any())


def _last_output_time(draft: Draft) -> int:
    at = draft.positions(c.ProvideOutput.OPCODE)
    at = at[at < draft.positions(c.NoOperationMarker.OPCODE)[0]]
    matrices = draft.submatrices[draft.table[at, c.FIRST_OPERAND_COLUMN], analysis.MATRIX].tolist()
    return max(int(draft.debug_info[m].pattern[:, computation.T].max()) for m in matrices)


def _around(kept: arrays.Bools) -> range:
    """Returns the rows from the first to the last of those that are true."""
    at = np.flatnonzero(kept)
    return range(int(at[0]), int(at[-1]) + 1) if len(at) else range(0)


class _Limiter:
    """Narrows commands one by one."""

    def __init__(self, draft: Draft, low: int, high: int) -> None:
        self.draft = draft
        self.edit = Edit(draft)
        self.low, self.high = low, high
        self._kept: dict[int, arrays.Bools] = {}
        self._narrowed: dict[tuple[int, range], int] = {}

    def run(self) -> Draft:
        """Returns the narrowed draft."""
        actions: dict[type[c.Command], Callable[[int, Any], None]] = {
            c.Backprop: self._backprop,
            c.BackpropNoModelUpdate: self._backprop,
            c.MatrixCopy: self._matrix,
            c.MatrixAdd: self._matrix,
            c.CopyRows: self._rows,
            c.AddRows: self._rows,
            c.CopyRowsMulti: self._multi,
            c.AddRowsMulti: self._multi,
            c.CopyToRowsMulti: self._multi,
            c.AddToRowsMulti: self._multi,
            c.AddRowRanges: self._ranges,
        }
        for at in self.draft.positions(*(each.OPCODE for each in actions)).tolist():
            row = self.draft.table[at].tolist()
            command = c.SCHEMA.command(row)
            actions[type(command)](at, command)
        drop_unused_memos(self.edit.table)
        return without_unused_matrices(self.edit.draft())

    # -- which rows ----------------------------------------------------------------------------

    def _kept_rows(self, submatrix: int) -> arrays.Bools:
        """Returns which rows of a submatrix are inside the range; for values all rows."""
        matrix, row, rows, _, _ = self.draft.submatrices[submatrix].tolist()
        if not submatrix or not self.draft.debug_info[matrix].is_deriv:
            return np.ones(rows, dtype=np.bool_)
        if matrix not in self._kept:
            t = self.draft.debug_info[matrix].cindexes[:, computation.T]
            self._kept[matrix] = (t >= self.low) & (t <= self.high)
        return self._kept[matrix][row : row + rows]

    def _stretch(self, submatrix: int) -> range:
        """Returns the rows from the first to the last row inside the range."""
        return _around(self._kept_rows(submatrix))

    def _part(self, submatrix: int, stretch: range) -> int:
        """Returns the submatrix of some rows of another one."""
        if submatrix == 0 or len(stretch) == self.draft.submatrices[submatrix, 2]:
            return submatrix
        key = submatrix, stretch
        if key not in self._narrowed:
            self._narrowed[key] = self.edit.rows_of(submatrix, stretch.start, len(stretch))
        return self._narrowed[key]

    def _set(self, at: int, command: c.Command, **operands: int) -> None:
        for name, value in operands.items():
            self.edit.table[at, c.columns(type(command))[name]] = value

    # -- commands ------------------------------------------------------------------------------

    def _backprop(self, at: int, command: c.Backprop | c.BackpropNoModelUpdate) -> None:
        stretch = self._stretch(command.output_deriv)
        if not len(stretch):
            self.edit.delete(at)
            return
        properties = self.draft.nnet.components[command.component].properties
        if properties & Property.SIMPLE and not properties & Property.USES_MEMO:
            names = ("input_value", "output_value", "output_deriv", "input_deriv")
            parts = {name: self._part(getattr(command, name), stretch) for name in names}
            self._set(at, command, **parts)

    def _matrix(self, at: int, command: c.MatrixCopy | c.MatrixAdd) -> None:
        kept = self._kept_rows(command.output) & self._kept_rows(command.input)
        stretch = _around(kept)
        if not len(stretch):
            self.edit.delete(at)
            return
        kept = kept[stretch.start : stretch.stop]
        output, given = (self._part(each, stretch) for each in (command.output, command.input))
        if kept.all():
            self._set(at, command, output=output, input=given)
            return
        by_rows = c.CopyRows if isinstance(command, c.MatrixCopy) else c.AddRows
        indexes = self.edit.indexes(np.where(kept, np.arange(len(stretch)), -1))
        by = by_rows(output=output, input=given, indexes=indexes, alpha=command.alpha)
        self.edit.replace(at, by)

    def _rows(self, at: int, command: c.CopyRows | c.AddRows) -> None:
        own, source = self._stretch(command.output), self._stretch(command.input)
        indexes = self.draft.indexes[command.indexes]
        kept = self._kept_rows(command.output) & (indexes >= 0)
        kept &= self._kept_rows(command.input)[indexes]
        if not kept.any():
            self.edit.delete(at)
            return
        new = np.where(kept, indexes - source.start, -1)[own.start : own.stop]
        self._set(
            at,
            command,
            output=self._part(command.output, own),
            input=self._part(command.input, source),
            indexes=self.edit.indexes(new),
        )

    def _multi(
        self,
        at: int,
        command: c.CopyRowsMulti | c.AddRowsMulti | c.CopyToRowsMulti | c.AddToRowsMulti,
    ) -> None:
        name = command.OPERANDS[0].name
        first = int(getattr(command, name))
        own = self._stretch(first)
        pairs = self.draft.indexes_multi[command.indexes_multi]
        new = np.where(self._kept_rows(first)[:, None], pairs, -1)
        for submatrix in np.unique(pairs[pairs[:, 0] > 0, 0]).tolist():
            at_rows = np.flatnonzero(new[:, 0] == submatrix)
            rows = new[at_rows, 1]
            kept = self._kept_rows(submatrix)[rows]
            stretch = self._stretch(submatrix)
            part = self._part(submatrix, stretch) if kept.any() else -1
            new[at_rows, 0] = np.where(kept, part, -1)
            new[at_rows, 1] = np.where(kept, rows - stretch.start, -1)
        if (new[:, 0] < 0).all():
            self.edit.delete(at)
            return
        changes = {name: self._part(first, own)}
        changes["indexes_multi"] = self.edit.indexes_multi(new[own.start : own.stop])
        self._set(at, command, **changes)

    def _ranges(self, at: int, command: c.AddRowRanges) -> None:
        own, source = self._stretch(command.output), self._stretch(command.input)
        ranges = self.draft.indexes_ranges[command.indexes_ranges]
        kept_source = self._kept_rows(command.input)
        # Sequences one after the other leave several pieces of a range: a command for each.
        pieces: list[c.Table] = []
        for row in np.flatnonzero(self._kept_rows(command.output)).tolist():
            for number, piece in enumerate(_pieces(kept_source, *ranges[row].tolist())):
                if number == len(pieces):
                    pieces.append(np.full_like(ranges, -1))
                pieces[number][row] = piece.start - source.start, piece.stop - source.start
        if not pieces:
            self.edit.delete(at)
            return
        output, given = self._part(command.output, own), self._part(command.input, source)
        lists = [self.edit.indexes_ranges(piece[own.start : own.stop]) for piece in pieces]
        self._set(at, command, output=output, input=given, indexes_ranges=lists[0])
        for each in lists[1:]:
            added = c.AddRowRanges(
                output=output, input=given, indexes_ranges=each, alpha=command.alpha
            )
            self.edit.insert(at + 1, np.array([added.row], np.int32))


def _pieces(kept: arrays.Bools, begin: int, end: int) -> list[range]:
    """Returns the runs of rows inside the time range, among the rows from begin to end - 1."""
    edges = np.flatnonzero(np.diff(kept[begin:end].astype(np.int8), prepend=0, append=0))
    return [range(begin + first, begin + last) for first, last in edges.reshape(-1, 2).tolist()]
