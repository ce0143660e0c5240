"""A computation that runs on hashes: the way in which each result was computed.

Forward, NoOp and BackpropTruncation are copies. Other components are unknown functions. A component
that is simple, has no memo and is not random is a function of each row; its updates and statistics
are sums over rows. Statistics over time are functions of ranges of rows. Any other component is a
function of all rows together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from nnet3_computation import commands as c
from nnet3_computation.computation import NnetComputation
from nnet3_descriptors.components import ComponentProperties as Property
from nnet3_descriptors.components import (
    StatisticsExtractionPrecomputedIndexes,
    StatisticsPoolingPrecomputedIndexes,
)
from nnet3_descriptors.values import remembered

from nnet3_optimizer.equivalence import hashes
from nnet3_optimizer.equivalence.contents import SIGN, Content, Rectangle, Rows
from nnet3_optimizer.errors import EquivalenceError

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet

Command = tuple[int, ...]
"""A row of the table of commands."""

_ABSENT = 0
_ONE = c.alpha_bits(1.0)
_STATISTICS = StatisticsExtractionPrecomputedIndexes, StatisticsPoolingPrecomputedIndexes


Calls = dict[int, list[tuple[int, int]]]
"""For components, calls: the sum over the rows of what the call adds, and its position."""


class Behaviour(NamedTuple):
    """The effects of a computation that a user can observe.

    Attributes:
        provided: The matrices given to the user, by segment and node.
        updates: For each component that is updated, the calls that do.
        stats: For each component with new statistics, the calls that add to them.
    """

    provided: dict[tuple[int, int], Rectangle]
    updates: Calls
    stats: Calls


class Execution:
    """The values that commands read and write.

    Attributes:
        behaviour: The observable effects so far.
        segment: The number of the segment.
        command: The position of the command that runs.
    """

    def __init__(self, nnet: Nnet, computation: NnetComputation, supply: hashes.Supply) -> None:
        self.computation = computation
        self.behaviour = Behaviour({}, defaultdict(list), defaultdict(list))
        self.segment = self.command = 0
        self._fresh = supply.fresh
        self._kinds = _kinds(nnet)
        places: list[list[int]] = computation.submatrices.T.tolist()
        self._matrix, self._row, self._rows, self._col, self._cols = places
        self._places = [*zip(*places, strict=True)]
        self._heights, self._widths = computation.matrices.T.tolist()
        is_whole = (computation.submatrices[:, 2::2] == computation.matrices[self._matrix]).all(
            axis=1
        )
        self._is_whole: list[bool] = is_whole.tolist()
        self._contents: list[Content | _Maker | None] = [None] * len(computation.matrices)
        self._memos: dict[int, int] = {}
        self._draws: dict[int, int] = {}
        self._precomputed: dict[int, str] = {}

    def run(self, segments: int | None) -> Behaviour:
        """Runs the computation and returns its behaviour.

        Args:
            segments: The number of segments to run; a loop can run any number. None runs all
                commands once.

        Raises:
            EquivalenceError: A command uses a matrix or memo that does not exist.
        """
        columns: list[list[int]] = self.computation.command_table.T.tolist()
        commands: list[Command] = [*zip(*columns, strict=True)]
        actions = [_ACTIONS.get(opcode) for opcode in columns[c.OPCODE_COLUMN]]
        begin, end = 0, len(commands)
        while begin < end:
            for self.command in range(begin, end):
                command, action = commands[self.command], actions[self.command]
                if action is not None:
                    action(self, command)
                if segments is not None and command[c.OPCODE_COLUMN] in _ENDS:
                    if self.segment == segments:
                        return self.behaviour
                    if command[c.OPCODE_COLUMN] == c.GotoLabel.OPCODE:
                        begin = command[c.FIRST_OPERAND_COLUMN]
                        break
            else:
                begin = end
        return self.behaviour

    # -- matrices ------------------------------------------------------------------------------

    def content(self, submatrix: int) -> Content:
        """Returns the content of the matrix of a submatrix.

        Raises:
            EquivalenceError: It is not allocated.
        """
        matrix = self._matrix[submatrix]
        content = self._contents[matrix]
        if isinstance(content, Content):
            return content
        if content is None:
            raise EquivalenceError(
                f"c{self.command} uses m{matrix} while it is not allocated", what=f"m{matrix}"
            )
        made = Content([0, self._widths[matrix]], [content(self._heights[matrix])])
        self._contents[matrix] = made
        return made

    def read(self, submatrix: int, *, only_signs: bool = False) -> Rectangle:
        """Returns the elements of a submatrix."""
        content = self._contents[self._matrix[submatrix]]
        if content.__class__ is not Content:
            content = self.content(submatrix)
        if self._is_whole[submatrix] and content.rounding is None:
            return content
        return content.read(
            self._row[submatrix],
            self._rows[submatrix],
            self._col[submatrix],
            self._cols[submatrix],
            only_signs=only_signs,
        )

    def rows(self, submatrix: int) -> hashes.Hashes:
        """Returns a hash of each row of a submatrix, (rows,)."""
        return self.read(submatrix).rows()

    def write(
        self, submatrix: int, given: Rectangle, *, adds: bool, places: Rows | None = None
    ) -> None:
        """Sets or adds to the elements of a submatrix; see `Content.write`."""
        matrix = self._matrix[submatrix]
        content = self._contents[matrix]
        sets_all = content is not None and (not adds or content is _zeros)
        if sets_all and places is None and self._is_whole[submatrix]:
            columns = [column.copy() for column in given.columns]
            self._contents[matrix] = Content(given.splits.copy(), columns)
            return
        if content.__class__ is not Content:
            content = self.content(submatrix)
        row, begin, cols = self._row[submatrix], self._col[submatrix], self._cols[submatrix]
        content.write(row, begin, cols, given, adds=adds, places=places)

    def write_rows(self, submatrix: int, values: hashes.Hashes, *, adds: bool) -> None:
        """Writes unknown rows, one number for each, (rows,)."""
        self.write(submatrix, Rectangle([0, self._cols[submatrix]], [values]), adds=adds)

    def transfer(self, output: int, given: int, alpha: int, *, adds: bool) -> None:
        """Writes the elements of a submatrix, times a factor, to another one."""
        elements = _scaled(self.read(given), alpha)
        if self._matrix[given] == self._matrix[output]:
            elements = elements.changed(np.copy)
        self.write(output, elements, adds=adds)

    def same_place(self, one: int, other: int) -> bool:
        """Whether two submatrices have the same elements, so that a component works in place."""
        return one == other or self._places[one] == self._places[other]

    # -- commands on matrices ------------------------------------------------------------------

    def _alloc_zeroed(self, command: Command) -> None:
        self._contents[self._matrix[command[2]]] = _zeros

    def _alloc_undefined(self, command: Command) -> None:
        self._contents[self._matrix[command[2]]] = self._fresh

    def _dealloc(self, command: Command) -> None:
        matrix = self._matrix[command[2]]
        if self._contents[matrix] is None:
            self.content(command[2])
        self._contents[matrix] = None

    def _swap(self, command: Command) -> None:
        content = self.content(command[3])
        self._contents[self._matrix[command[3]]] = None
        self._contents[self._matrix[command[2]]] = content

    def _accept(self, command: Command) -> None:
        seed = hashes.seed_of("input", self.segment, command[3])
        self._contents[self._matrix[command[2]]] = lambda rows: hashes.unknowns(seed, rows)

    def _provide(self, command: Command) -> None:
        elements = self.read(command[2]).changed(np.copy)
        self.behaviour.provided[self.segment, command[3]] = elements

    def _next_segment(self, command: Command) -> None:
        self.segment += 1

    def _compress(self, command: Command) -> None:
        alpha, submatrix, kind, truncate = command[1:5]
        content = self.content(submatrix)
        if not c.keeps_sign_only(kind, c.alpha_value(alpha)):
            content.rounding = (kind, truncate, alpha, content.rounding)
        elif content.rounding not in (None, SIGN):
            content.rounding = (SIGN, content.rounding)
        else:
            content.rounding = SIGN

    # -- copies and sums -----------------------------------------------------------------------

    def _set_const(self, command: Command) -> None:
        output = command[2]
        rows, cols = self._rows[output], self._cols[output]
        self.write(output, Rectangle.constant(rows, cols, c.alpha_value(command[1])), adds=False)

    def _copy_matrix(self, command: Command) -> None:
        self.transfer(command[2], command[3], command[1], adds=command[0] in _ADDING)

    def _copy_rows(self, command: Command) -> None:
        taken = self.read(command[3]).taken(self.computation.indexes[command[4]])
        self.write(command[2], _scaled(taken, command[1]), adds=command[0] in _ADDING)

    def _gather(self, command: Command) -> None:
        alpha, output, indexes_multi = command[1:4]
        adds = command[0] in _ADDING
        parts = [  # all sources are read before anything is written
            (_scaled(self.read(submatrix).taken(rows), alpha), places)
            for submatrix, rows, places in self._pairs(indexes_multi)
        ]
        if not adds:
            zeros = Rectangle.constant(self._rows[output], self._cols[output], 0.0)
            self.write(output, zeros, adds=False)
        for part, places in parts:
            self.write(output, part, adds=adds, places=places)

    def _scatter(self, command: Command) -> None:
        source = _scaled(self.read(command[2]), command[1]).changed(np.copy)
        for submatrix, rows, places in self._pairs(command[3]):
            self.write(submatrix, source.taken(places), adds=command[0] in _ADDING, places=rows)

    def _pairs(self, indexes_multi: int) -> list[tuple[int, Rows, Rows]]:
        """The pairs of a list by submatrix: the rows named, and their places in the list."""
        submatrix, rows = self.computation.indexes_multi[indexes_multi].T
        places = np.argsort(submatrix, kind="stable")
        submatrix, rows = submatrix[places], rows[places]
        follows = submatrix[1:] == submatrix[:-1]
        counts_up = follows & (np.diff(rows) == 1) & (np.diff(places) == 1)
        begins = [0, *(np.flatnonzero(~follows) + 1).tolist()]
        is_range = np.logical_and.reduceat(np.append(True, counts_up | ~follows), begins).tolist()
        found: list[tuple[int, Rows, Rows]] = []
        for begin, end, ranges in zip(begins, [*begins[1:], len(rows)], is_range, strict=True):
            if submatrix[begin] <= 0:
                continue
            row, place = int(rows[begin]), int(places[begin])
            if ranges:
                named = slice(row, row + end - begin), slice(place, place + end - begin)
                found.append((int(submatrix[begin]), *named))
            else:
                found.append((int(submatrix[begin]), rows[begin:end], places[begin:end]))
        return found

    def _add_ranges(self, command: Command) -> None:
        begin, end = self.computation.indexes_ranges[command[4]].T
        sums = self.read(command[3]).range_sums(begin, end)
        self.write(command[2], _scaled(sums, command[1]), adds=True)

    # -- components ----------------------------------------------------------------------------

    def _propagate(self, command: Command) -> None:
        component, precomputed, given, output, memo = command[2:7]
        kind = self._kinds[component]
        adds = kind.has(Property.PROPAGATE_ADDS) and not self.same_place(given, output)
        if kind.scale is not None:
            self.transfer(output, given, kind.scale, adds=adds)
            return
        indexes = self.computation.precomputed_indexes[precomputed]
        if kind.works_by_rows:
            values = hashes.function(kind.forward, self.rows(given))
        elif isinstance(indexes, StatisticsExtractionPrecomputedIndexes):
            frames = hashes.function(kind.statistics, self.rows(given))
            values = hashes.sums_of_ranges(frames, *indexes.forward_indexes.T)
        elif isinstance(indexes, StatisticsPoolingPrecomputedIndexes):
            sums = hashes.sums_of_ranges(self.rows(given), *indexes.forward_indexes.T)
            values = hashes.function(kind.statistics, sums)
        else:
            about: list[Hashable] = [component, self._about(precomputed), self._all_rows(given)]
            if kind.has(Property.RANDOM):
                self._draws[component] = self._draws.get(component, 0) + 1
                about.append(self._draws[component])
            if memo:
                self._memos[memo] = hashes.seed_of("memo", *about)
            values = hashes.unknowns(hashes.seed_of("forward", *about), self._rows[output])
        self.write_rows(output, values, adds=adds)

    def _store_stats(self, command: Command) -> None:
        # Statistics depend on the output or the memo; the input adds nothing.
        component, _, output, memo = command[2:6]
        kind = self._kinds[component]
        if kind.works_by_rows:
            stored = _total(hashes.function(kind.stored, self.rows(output)))
        else:
            stored = hashes.seed_of(
                "stored", component, self._all_rows(output), self._memos.get(memo)
            )
        self.behaviour.stats[component].append((stored, self.command))

    def _backward(self, command: Command) -> None:
        opcode, _, component, precomputed, given, output, output_deriv, input_deriv, memo = command
        kind = self._kinds[component]
        given = given if kind.has(Property.BACKPROP_NEEDS_INPUT) else _ABSENT
        output = output if kind.has(Property.BACKPROP_NEEDS_OUTPUT) else _ABSENT
        updates = opcode == c.Backprop.OPCODE and (
            kind.has(Property.UPDATABLE) or kind.backprop_stores
        )
        adds = kind.has(Property.BACKPROP_ADDS) and not self.same_place(input_deriv, output_deriv)
        indexes = self.computation.precomputed_indexes[precomputed]
        if kind.works_by_rows:
            # A rectified linear unit reads its output only to see whether it is positive.
            inputs = self.read(given).rows(1) if given else None
            outputs = self.read(output, only_signs=kind.is_relu).rows(2) if output else None
            values = hashes.function(kind.backward, self.rows(output_deriv), inputs, outputs)
            update = _total(values) if updates else 0
        elif isinstance(indexes, _STATISTICS):
            values = self._statistics_backward(kind, indexes, given, output, output_deriv)
            updates = False
        else:
            if memo and memo not in self._memos:
                raise EquivalenceError(
                    f"c{self.command} uses memo {memo}, which no Propagate made", what="memo"
                )
            read = tuple(self._all_rows(each) for each in (given, output, output_deriv))
            update = hashes.seed_of(
                "backward", component, self._about(precomputed), read, self._memos.get(memo)
            )
            values = hashes.unknowns(update, self._rows[input_deriv])
        if input_deriv:
            self.write_rows(input_deriv, values, adds=adds)
        if updates:
            changed = (
                self.behaviour.updates if kind.has(Property.UPDATABLE) else self.behaviour.stats
            )
            changed[component].append((update, self.command))

    def _statistics_backward(
        self, kind: _Kind, indexes: Any, given: int, output: int, output_deriv: int
    ) -> hashes.Hashes:
        """Returns a number for each input row: a function of the output rows that it adds to."""
        derivs = self.rows(output_deriv)
        inputs = self.read(given).rows(1) if given else None
        outputs = self.read(output).rows(2) if output else None
        if isinstance(indexes, StatisticsExtractionPrecomputedIndexes):
            return hashes.function(kind.backward, derivs[indexes.backward_indexes], inputs)
        if inputs is not None:
            inputs = hashes.sums_of_ranges(inputs, *indexes.forward_indexes.T)
        rows = hashes.function(kind.pooled, derivs, inputs, outputs)
        sums = hashes.sums_of_ranges(rows, *indexes.backward_indexes.T)
        return hashes.function(kind.backward, sums)

    def _all_rows(self, submatrix: int) -> int:
        """A hash of all rows in their order; 0 for submatrix 0."""
        return hashes.of_all(self.rows(submatrix)) if submatrix else _ABSENT

    def _about(self, precomputed: int) -> str:
        """A text that is the same for equal precomputed indexes."""
        if precomputed not in self._precomputed:
            value = self.computation.precomputed_indexes[precomputed]
            self._precomputed[precomputed] = f"{hashes.seed_of(_content(value)):x}"
        return self._precomputed[precomputed]


_Action = Callable[[Execution, Command], None]
_Maker = Callable[[int], hashes.Hashes]
"""Makes a number for each row of a matrix."""

_ENDS = c.NoOperationMarker.OPCODE, c.GotoLabel.OPCODE
_ADDING = frozenset(
    each.OPCODE for each in (c.MatrixAdd, c.AddRows, c.AddRowsMulti, c.AddToRowsMulti)
)

_ACTIONS: dict[int, _Action] = {
    c.AllocMatrixZeroed.OPCODE: Execution._alloc_zeroed,
    c.AllocMatrixUndefined.OPCODE: Execution._alloc_undefined,
    c.DeallocMatrix.OPCODE: Execution._dealloc,
    c.SwapMatrix.OPCODE: Execution._swap,
    c.CompressMatrix.OPCODE: Execution._compress,
    c.AcceptInput.OPCODE: Execution._accept,
    c.ProvideOutput.OPCODE: Execution._provide,
    c.NoOperationMarker.OPCODE: Execution._next_segment,
    c.SetConst.OPCODE: Execution._set_const,
    c.MatrixCopy.OPCODE: Execution._copy_matrix,
    c.MatrixAdd.OPCODE: Execution._copy_matrix,
    c.CopyRows.OPCODE: Execution._copy_rows,
    c.AddRows.OPCODE: Execution._copy_rows,
    c.CopyRowsMulti.OPCODE: Execution._gather,
    c.AddRowsMulti.OPCODE: Execution._gather,
    c.CopyToRowsMulti.OPCODE: Execution._scatter,
    c.AddToRowsMulti.OPCODE: Execution._scatter,
    c.AddRowRanges.OPCODE: Execution._add_ranges,
    c.Propagate.OPCODE: Execution._propagate,
    c.StoreStats.OPCODE: Execution._store_stats,
    c.Backprop.OPCODE: Execution._backward,
    c.BackpropNoModelUpdate.OPCODE: Execution._backward,
}
"""What executes each command; the other commands do nothing that matters here."""


def _zeros(rows: int) -> hashes.Hashes:
    return np.zeros(rows, np.uint64)


def _scaled(given: Rectangle, alpha: int) -> Rectangle:
    """Returns elements times a scale, given as in the table of commands."""
    if alpha == _ONE:
        return given
    by = hashes.factor(c.alpha_value(alpha))
    return given.changed(lambda column: column * by)


def _total(values: hashes.Hashes) -> int:
    return int(np.add.reduce(values))


def _content(value: Any) -> Hashable:
    """Returns an immutable value with all of its content, as something to print."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple | list):
        return tuple(map(_content, value))
    fields = getattr(value, "__attrs_attrs__", None)
    if fields is not None:
        return type(value).__name__, *(_content(getattr(value, field.name)) for field in fields)
    result: Hashable = value
    return result


# -- components ------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """The facts about a component that execution needs, and its unknown functions.

    Attributes:
        works_by_rows: Whether it is an unknown function of each row, not of all rows together.
        properties: Bits of `ComponentProperties`.
        backprop_stores: Whether it keeps statistics of its derivatives, too.
        scale: Its output is its input times this, as in the table; None for others.
        is_relu: Whether its backward pass only needs to know which of its outputs are positive.
        forward, backward, stored, statistics, pooled: The numbers of its functions.
    """

    works_by_rows: bool
    properties: int
    backprop_stores: bool
    scale: int | None
    is_relu: bool
    forward: hashes.Hashes
    backward: hashes.Hashes
    stored: hashes.Hashes
    statistics: hashes.Hashes
    pooled: hashes.Hashes

    def has(self, wanted: Property) -> bool:
        """Returns whether the component has a property."""
        return self.properties & int(wanted) != 0


_COPIES = "NoOpComponent", "BackpropTruncationComponent"
"""The components whose output is a scale times their input."""

_FUNCTIONS = "forward", "backward", "stored", "statistics", "pooled"


@remembered
def _kinds(nnet: Nnet) -> tuple[_Kind, ...]:
    """Returns the kinds of the components."""
    kinds = []
    for place, component in enumerate(nnet.components):
        has = component.properties
        is_copy = component.type in _COPIES
        whole = Property.USES_MEMO | Property.RANDOM
        works_by_rows = bool(has & Property.SIMPLE) and not has & whole
        kinds.append(
            _Kind(
                works_by_rows=works_by_rows,
                properties=int(has),
                backprop_stores=works_by_rows and bool(has & Property.STORES_STATS),
                scale=c.alpha_bits(getattr(component, "scale", 1.0)) if is_copy else None,
                is_relu=component.type == "RectifiedLinearComponent",
                **{name: hashes.number(hashes.seed_of(name, place)) for name in _FUNCTIONS},
            )
        )
    return tuple(kinds)
