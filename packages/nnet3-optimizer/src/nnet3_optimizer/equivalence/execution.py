"""Symbolic execution of a computation: what the user gets, as hashes of how it was computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from nnet3_compiler.commands import (
    AcceptInput,
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    AllocMatrixUndefined,
    AllocMatrixZeroed,
    Backprop,
    BackpropNoModelUpdate,
    CompressMatrix,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    DeallocMatrix,
    GotoLabel,
    MatrixAdd,
    MatrixCopy,
    NoOperationMarker,
    Propagate,
    ProvideOutput,
    SetConst,
    StoreStats,
    SwapMatrix,
)
from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.declaration import (
    ALPHA_COLUMN,
    FIRST_OPERAND_COLUMN,
    OPCODE_COLUMN,
    alpha_value,
)
from nnet3_descriptors.components.properties import ComponentProperties as Property

from nnet3_optimizer.compression import keeps_sign_only
from nnet3_optimizer.equivalence.field import (
    Elements,
    as_elements,
    column_sums,
    combine,
    element_of,
    mix,
    times,
)
from nnet3_optimizer.equivalence.matrices import Content, Region
from nnet3_optimizer.errors import EquivalenceError

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

_INPUT, _UNDEFINED, _FORWARD, _BACKWARD, _UPDATE, _STATS, _MEMO, _BLOCK, _ROUNDED = range(1, 10)
"""What a hash is about."""

_WHOLE_HASH = np.uint64(0x9E3779B97F4A7C15)


@attrs.define
class Behaviour:
    """What a computation does that can be seen from outside.

    Attributes:
        provided: For each matrix given to the user, by segment and node: a hash of each row.
        updates: For each component that is updated, the sum of the hashes of its contributions.
        stats: For each component with new statistics, the sum of the hashes of its contributions.
    """

    provided: dict[tuple[int, int], Elements] = attrs.field(factory=dict)
    updates: dict[int, int] = attrs.field(factory=dict)
    stats: dict[int, int] = attrs.field(factory=dict)


def block_hash(row_hashes: Elements) -> int:
    """Returns a hash of all rows in their order."""
    numbers = np.arange(len(row_hashes), dtype=np.uint64) * _WHOLE_HASH
    total = mix(row_hashes + mix(numbers)).sum(dtype=np.uint64)
    return int(combine(_BLOCK, len(row_hashes), int(total))[0])


class SymbolicExecution:
    """Runs a computation on symbols.

    A NoOp is a copy. Other components are unknown functions: of each row where they are simple,
    have no memo and are not random, else of all rows together; their model update and statistics
    are sums of unknown contributions. Undefined elements are symbols that occur in no other
    computation.
    """

    def __init__(self, nnet: Nnet, computation: NnetComputation, salt: int) -> None:
        """Prepares a run.

        Args:
            nnet: The network.
            computation: The computation.
            salt: Tells the undefined elements of one computation from those of another.
        """
        self.nnet = nnet
        self.computation = computation
        self.behaviour = Behaviour()
        self._salt = salt
        self._properties = [component.properties for component in nnet.components]
        self._submatrices: list[list[int]] = computation.submatrices.tolist()
        self._sizes: list[list[int]] = computation.matrices.tolist()
        self._contents: list[Content | None] = [None] * len(self._sizes)
        self._memos: dict[int, int] = {}
        self._draws: dict[int, int] = {}
        self._precomputed: dict[int, int] = {}
        self._segment = 0
        self._undefined = 0
        self._command = 0

    def run(self, num_segments: int | None = None) -> Behaviour:
        """Executes commands and returns what was seen from outside.

        Args:
            num_segments: How many segments to run, which a loop may do any number of times; None to
                run all commands once.
        """
        table = self.computation.command_table.tolist()
        self._command = 0
        while self._command < len(table):
            row = table[self._command]
            if num_segments is not None and self._segment == num_segments:
                break
            action = _ACTIONS.get(row[OPCODE_COLUMN])
            if action is not None:
                alpha = alpha_value(row[ALPHA_COLUMN]) if row[ALPHA_COLUMN] else 0.0
                action(self, alpha, *row[FIRST_OPERAND_COLUMN:])
            self._command += 1
            if row[OPCODE_COLUMN] == GotoLabel.OPCODE and num_segments is not None:
                self._command = row[FIRST_OPERAND_COLUMN]
        return self.behaviour

    # -- matrices ------------------------------------------------------------------------------

    def _region(self, submatrix: int) -> Region:
        matrix, row, rows, col, cols = self._submatrices[submatrix]
        content = self._contents[matrix]
        if content is None:
            raise EquivalenceError(
                f"c{self._command} uses m{matrix} while it is not allocated", what=f"m{matrix}"
            )
        return Region(content, row, rows, col, cols)

    def _same(self, one: int, other: int) -> bool:
        """Whether two submatrices are the same elements, so that a component works in place."""
        return self._submatrices[one] == self._submatrices[other]

    def _allocate(self, submatrix: int) -> Content:
        matrix = self._submatrices[submatrix][0]
        content = self._contents[matrix] = Content(*self._sizes[matrix])
        return content

    def _alloc_zeroed(self, alpha: float, submatrix: int, *_: int) -> None:
        self._allocate(submatrix)

    def _alloc_undefined(self, alpha: float, submatrix: int, *_: int) -> None:
        content = self._allocate(submatrix)
        self._undefined += 1
        self._fill(content, _UNDEFINED, self._salt, self._undefined)

    def _fill(self, content: Content, *about: int) -> None:
        numbers = np.arange(len(content.values), dtype=np.uint64)
        content.values[:] = as_elements(combine(numbers, *about))[:, None]

    def _dealloc(self, alpha: float, submatrix: int, *_: int) -> None:
        self._region(submatrix)
        self._contents[self._submatrices[submatrix][0]] = None

    def _swap(self, alpha: float, destination: int, source: int, *_: int) -> None:
        self._region(source)
        to, taken = self._submatrices[destination][0], self._submatrices[source][0]
        self._contents[to], self._contents[taken] = self._contents[taken], None

    def _accept(self, alpha: float, submatrix: int, node: int, *_: int) -> None:
        self._fill(self._allocate(submatrix), _INPUT, self._segment, node)

    def _provide(self, alpha: float, submatrix: int, node: int, *_: int) -> None:
        self.behaviour.provided[self._segment, node] = self._region(submatrix).row_hashes()

    def _next_segment(self, *_: float) -> None:
        self._segment += 1

    def _compress(self, alpha: float, submatrix: int, kind: int, truncate: int, *_: int) -> None:
        content = self._region(submatrix).content
        exact = keeps_sign_only(kind, alpha)
        about = (_ROUNDED, 0, 0, 0) if exact else (_ROUNDED, kind, truncate, element_of(alpha))
        if exact:
            content.rounding = 1
        else:
            content.rounding = int(combine(*about, content.rounding)[0]) | 2

    # -- copies and sums -----------------------------------------------------------------------

    def _set_const(self, alpha: float, output: int, *_: int) -> None:
        region = self._region(output)
        zeros = np.zeros((region.rows, 1), dtype=np.uint64)
        constants = None if alpha == 0.0 else zeros + np.uint64(element_of(alpha))
        region.write(zeros, constants, (0, region.cols), adds=False)

    def _move(
        self,
        alpha: float,
        output: Region,
        given: Region,
        source_rows: np.ndarray | None,
        target_rows: np.ndarray | None,
        *,
        adds: bool,
    ) -> None:
        """Copies or adds rows of one region to rows of another; row -1 is a row of zeros."""
        given.refine(output.points())
        values, constants = given.read()
        if alpha != 1.0:
            factor = element_of(alpha)
            values = times(values, factor)
            constants = None if constants is None else times(constants, factor)
        if source_rows is not None:
            values = _take(values, source_rows)
            constants = None if constants is None else _take(constants, source_rows)
        output.write(values, constants, given.points(), adds=adds, rows=target_rows)

    def _matrix_copy(self, alpha: float, output: int, given: int, *_: int) -> None:
        self._move(alpha, self._region(output), self._region(given), None, None, adds=False)

    def _matrix_add(self, alpha: float, output: int, given: int, *_: int) -> None:
        self._move(alpha, self._region(output), self._region(given), None, None, adds=True)

    def _copy_rows(self, alpha: float, output: int, given: int, indexes: int, *_: int) -> None:
        rows = self.computation.indexes[indexes]
        self._move(alpha, self._region(output), self._region(given), rows, None, adds=False)

    def _add_rows(self, alpha: float, output: int, given: int, indexes: int, *_: int) -> None:
        rows = self.computation.indexes[indexes]
        self._move(alpha, self._region(output), self._region(given), rows, None, adds=True)

    def _copy_rows_multi(self, alpha: float, output: int, indexes: int, *_: int) -> None:
        region = self._region(output)
        zeros = np.zeros((region.rows, 1), dtype=np.uint64)
        values = [(self._region(s), rows, at) for s, rows, at in self._listed(indexes)]
        # All sources are read before anything is written.
        read = [(given, given.read(), rows, at) for given, rows, at in values]
        region.write(zeros, None, (0, region.cols), adds=False)
        for given, (data, constants), rows, at in read:
            self._scatter(alpha, region, given, data, constants, rows, at)

    def _add_rows_multi(self, alpha: float, output: int, indexes: int, *_: int) -> None:
        region = self._region(output)
        for submatrix, rows, at in self._listed(indexes):
            self._move(alpha, region, self._region(submatrix), rows, at, adds=True)

    def _scatter(
        self,
        alpha: float,
        region: Region,
        given: Region,
        values: Elements,
        constants: Elements | None,
        rows: np.ndarray,
        at: np.ndarray,
    ) -> None:
        factor = element_of(alpha)
        values = times(values[rows], factor)
        constants = None if constants is None else times(constants[rows], factor)
        region.write(values, constants, given.points(), adds=True, rows=at)

    def _copy_to_rows(self, alpha: float, given: int, indexes: int, *_: int) -> None:
        for submatrix, rows, at in self._listed(indexes):
            self._move(alpha, self._region(submatrix), self._region(given), at, rows, adds=False)

    def _add_to_rows(self, alpha: float, given: int, indexes: int, *_: int) -> None:
        for submatrix, rows, at in self._listed(indexes):
            self._move(alpha, self._region(submatrix), self._region(given), at, rows, adds=True)

    def _listed(self, number: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """Returns the submatrices of a list, each with the rows named and their places in it."""
        submatrix, row = self.computation.indexes_multi[number].T
        result = []
        for each in np.unique(submatrix[submatrix > 0]).tolist():
            at = np.flatnonzero(submatrix == each)
            result.append((each, row[at], at))
        return result

    def _add_ranges(self, alpha: float, output: int, given: int, ranges: int, *_: int) -> None:
        region, source = self._region(output), self._region(given)
        source.refine(region.points())
        values, constants = source.read()
        factor = element_of(alpha)
        begin, end = self.computation.indexes_ranges[ranges].T
        region.write(
            times(_range_sums(values, begin, end), factor),
            None if constants is None else times(_range_sums(constants, begin, end), factor),
            source.points(),
            adds=True,
        )

    # -- components ----------------------------------------------------------------------------

    def _by_rows(self, component: int) -> bool:
        properties = self._properties[component]
        whole = Property.USES_MEMO | Property.RANDOM
        return bool(properties & Property.SIMPLE) and not properties & whole

    def _hashes(self, submatrix: int, *, ignore_rounding: bool = False) -> Elements:
        if submatrix == 0:
            return np.zeros(1, dtype=np.uint64)
        return self._region(submatrix).row_hashes(ignore_rounding=ignore_rounding)

    def _write_unknowns(self, submatrix: int, hashes: Elements, *, adds: bool) -> None:
        """Writes new unknown rows, one for each hash."""
        region = self._region(submatrix)
        values = np.broadcast_to(as_elements(hashes)[:, None], (region.rows, 1))
        region.write(values, None, (0, region.cols), adds=adds)

    def _rows_of_whole(self, submatrix: int, *about: int) -> Elements:
        """Returns hashes for the rows of what was computed as a whole."""
        rows = self._submatrices[submatrix][2]
        return combine(np.arange(rows, dtype=np.uint64), *about)

    def _precomputed_hash(self, number: int) -> int:
        if number not in self._precomputed:
            self._precomputed[number] = _hash_value(self.computation.precomputed_indexes[number])
        return self._precomputed[number]

    def _propagate(
        self,
        alpha: float,
        component: int,
        precomputed: int,
        given: int,
        output: int,
        memo: int,
        *_: int,
    ) -> None:
        properties = self._properties[component]
        if self.nnet.components[component].type == "NoOpComponent":
            self._matrix_copy(1.0, output, given)
            return
        inputs = self._hashes(given)
        adds = bool(properties & Property.PROPAGATE_ADDS) and not self._same(given, output)
        if self._by_rows(component):
            self._write_unknowns(output, combine(inputs, _FORWARD, component), adds=adds)
            return
        about = [_FORWARD, component, self._precomputed_hash(precomputed), block_hash(inputs)]
        if properties & Property.RANDOM:
            about.append(self._draws.get(component, 0))
            self._draws[component] = about[-1] + 1
        if memo:
            self._memos[memo] = int(combine(_MEMO, *about)[0])
        self._write_unknowns(output, self._rows_of_whole(output, *about), adds=adds)

    def _store_stats(
        self, alpha: float, component: int, given: int, output: int, memo: int, *_: int
    ) -> None:
        # Statistics are of the output, or of what the memo holds: the input says nothing more.
        about = block_hash(self._hashes(output))
        contribution = int(combine(_STATS, component, about, self._memos.get(memo, 0))[0])
        stats = self.behaviour.stats
        stats[component] = (stats.get(component, 0) + contribution) % 2**64

    def _backprop(self, alpha: float, component: int, *operands: int) -> None:
        self._backward(component, *operands[:6], updates=True)

    def _backprop_no_update(self, alpha: float, component: int, *operands: int) -> None:
        self._backward(component, *operands[:6], updates=False)

    def _backward(
        self,
        component: int,
        precomputed: int,
        input_value: int,
        output_value: int,
        output_deriv: int,
        input_deriv: int,
        memo: int,
        *,
        updates: bool,
    ) -> None:
        properties = self._properties[component]
        needs_input = properties & Property.BACKPROP_NEEDS_INPUT
        needs_output = properties & Property.BACKPROP_NEEDS_OUTPUT
        # A rectified linear unit looks at its output only to see whether it is positive.
        is_relu = self.nnet.components[component].type == "RectifiedLinearComponent"
        inputs = self._hashes(input_value if needs_input else 0)
        outputs = self._hashes(output_value if needs_output else 0, ignore_rounding=is_relu)
        derivs = self._hashes(output_deriv)
        adds = bool(properties & Property.BACKPROP_ADDS)
        adds &= not self._same(input_deriv, output_deriv)
        updates = updates and bool(properties & Property.UPDATABLE)
        if self._by_rows(component):
            about: tuple[Any, ...] = (inputs, outputs, derivs, component)
        else:
            blocks = [block_hash(each) for each in (inputs, outputs, derivs)]
            if memo and memo not in self._memos:
                raise EquivalenceError(
                    f"c{self._command} uses memo {memo}, which no Propagate made", what="memo"
                )
            where = self._precomputed_hash(precomputed)
            about = (*blocks, component, where, self._memos.get(memo, 0))
        if input_deriv:
            hashes = (
                combine(*about, _BACKWARD)
                if self._by_rows(component)
                else self._rows_of_whole(input_deriv, *about, _BACKWARD)
            )
            self._write_unknowns(input_deriv, hashes, adds=adds)
        if updates:
            contribution = int(combine(*about, _UPDATE).sum(dtype=np.uint64))
            total = self.behaviour.updates.get(component, 0) + contribution
            self.behaviour.updates[component] = total % 2**64


def _take(values: Elements, rows: np.ndarray) -> Elements:
    """Returns rows; zeros for row -1."""
    taken: Elements = values[rows]
    taken[rows < 0] = 0
    return taken


def _range_sums(values: Elements, begin: np.ndarray, end: np.ndarray) -> Elements:
    """Returns the sums of rows begin <= r < end; zeros where begin is -1."""
    sums = [column_sums(values[b:e]) for b, e in zip(begin.tolist(), end.tolist(), strict=True)]
    return np.stack(sums)


def _hash_value(value: Any) -> int:
    """Returns a hash of an array, number, tuple or attrs value, the same in all processes."""
    if isinstance(value, np.ndarray):
        words = np.ascontiguousarray(value).astype(np.int64).ravel().view(np.uint64)
        return block_hash(words) ^ len(value)
    if attrs.has(type(value)):
        fields = [_hash_value(getattr(value, field.name)) for field in attrs.fields(type(value))]
        return int(combine(len(fields), *fields)[0])
    if isinstance(value, tuple | list):
        return int(combine(len(value), *(_hash_value(each) for each in value))[0])
    if isinstance(value, float):
        return element_of(value)
    if value is None:
        return 0
    return int(value) % 2**64


_Action = Callable[..., None]

_ACTIONS: dict[int, _Action] = {
    AllocMatrixZeroed.OPCODE: SymbolicExecution._alloc_zeroed,
    AllocMatrixUndefined.OPCODE: SymbolicExecution._alloc_undefined,
    DeallocMatrix.OPCODE: SymbolicExecution._dealloc,
    SwapMatrix.OPCODE: SymbolicExecution._swap,
    CompressMatrix.OPCODE: SymbolicExecution._compress,
    AcceptInput.OPCODE: SymbolicExecution._accept,
    ProvideOutput.OPCODE: SymbolicExecution._provide,
    NoOperationMarker.OPCODE: SymbolicExecution._next_segment,
    SetConst.OPCODE: SymbolicExecution._set_const,
    MatrixCopy.OPCODE: SymbolicExecution._matrix_copy,
    MatrixAdd.OPCODE: SymbolicExecution._matrix_add,
    CopyRows.OPCODE: SymbolicExecution._copy_rows,
    AddRows.OPCODE: SymbolicExecution._add_rows,
    CopyRowsMulti.OPCODE: SymbolicExecution._copy_rows_multi,
    AddRowsMulti.OPCODE: SymbolicExecution._add_rows_multi,
    CopyToRowsMulti.OPCODE: SymbolicExecution._copy_to_rows,
    AddToRowsMulti.OPCODE: SymbolicExecution._add_to_rows,
    AddRowRanges.OPCODE: SymbolicExecution._add_ranges,
    Propagate.OPCODE: SymbolicExecution._propagate,
    StoreStats.OPCODE: SymbolicExecution._store_stats,
    Backprop.OPCODE: SymbolicExecution._backprop,
    BackpropNoModelUpdate.OPCODE: SymbolicExecution._backprop_no_update,
}
"""What each command does; the others do nothing that matters here."""
