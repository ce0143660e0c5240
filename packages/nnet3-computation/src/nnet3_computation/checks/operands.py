"""Commands fit: the component that they run, sizes, lists of rows; nothing overlaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nnet3_descriptors.components import ComponentProperties as Property
from nnet3_descriptors.components import IndexesType
from nnet3_descriptors.structure import component_dims

from nnet3_computation import commands
from nnet3_computation.analysis.accesses import CommandKinds
from nnet3_computation.analysis.layout import ROW_OFFSET
from nnet3_computation.arrays import Bools, Ids, where
from nnet3_computation.checks.subject import COLS, ROWS, Message, Subject

SUMS = CommandKinds.of(
    commands.MatrixCopy,
    commands.MatrixAdd,
    commands.CopyRows,
    commands.AddRows,
    commands.CopyRowsMulti,
    commands.AddRowsMulti,
    commands.CopyToRowsMulti,
    commands.AddToRowsMulti,
    commands.AddRowRanges,
)
"""Copies and sums, with a scale."""

COMPUTING = CommandKinds(
    SUMS.has
    | CommandKinds.of(commands.Propagate, commands.Backprop, commands.BackpropNoModelUpdate).has
)
"""Everything that computes elements from others."""


def check_components(subject: Subject) -> None:
    """Checks Propagate, StoreStats and both kinds of Backprop.

    1. The component is one of the network's.
    2. Simple components have no precomputed indexes. Those of other components fit the time offsets
       of the component and the rows and blocks of the matrices, and name existing rows.
    3. Matrices have the component's dimensions. Those of one side have the same number of rows; for
        simple components, those of both sides do.
    4. The operands that the component needs are given. Matrices are the same, or overlap, only
        where the component can work in place.
    5. Components that need rows without gaps have operands as wide as their matrices.
    6. Statistics are stored for components that keep them.
    7. A Backprop has an effect: an input derivative or a model update.
    """
    for check, *types in (
        (_check_propagates, commands.Propagate),
        (_check_stored_statistics, commands.StoreStats),
        (_check_backprops, commands.Backprop, commands.BackpropNoModelUpdate),
    ):
        at = subject.positions(*types)
        if len(at):
            check(_Calls(subject, at, types[0]))


class _Calls:
    """Commands of one kind, with their operands."""

    def __init__(self, subject: Subject, at: Ids, kind: type[commands.Command]) -> None:
        self.subject = subject
        self.at = at
        self._operands = np.ascontiguousarray(subject.table.take(at, axis=0).T, dtype=np.int64)
        self._columns = commands.columns(kind)
        self.component = self.operand("component")
        known = self.component < len(subject.nnet.components)
        subject.require(
            known,
            self.at,
            lambda i: (
                f"component = {self.component[i]} is out of range: the network has "
                f"{len(subject.nnet.components)} components"
            ),
        )
        self.properties = subject.analysis.component_properties[self.component]
        self.input_dim, self.output_dim = (
            dims[self.component] for dims in component_dims(subject.nnet)
        )

    def operand(self, name: str) -> Ids:
        operand: Ids = self._operands[self._columns[name]]
        return operand

    def has(self, wanted: Property) -> Bools:
        has: Bools = (self.properties & int(wanted)) != 0
        return has

    def about(self, text: str) -> Message:
        """Makes a message that names the component."""

        def message(i: int) -> str:
            name, component = self.subject.component(int(self.component[i]))
            return f"{text} component '{name}' ({component.type})"

        return message

    def require(self, valid: Bools, text: str) -> None:
        self.subject.require(valid, self.at, self.about(text))

    def side(self, operand: str, dims: commands.Table, dim: str) -> Ids:
        """Checks the columns of an operand on one side of the component; returns the operand."""
        value = self.operand(operand)
        self.subject.require_size(
            self.at, operand, value, COLS, dims, self.about(f"the {dim} dimension of")
        )
        return value

    def same_rows(self, first: str, second: str, wanted: Bools, why: str) -> None:
        """Checks that two operands, where given, have the same number of rows."""
        one, other = self.operand(first), self.operand(second)
        looked_at = where(wanted & (one != 0) & (other != 0))
        if not len(looked_at):
            return
        self.subject.require_size(
            self.at[looked_at],
            first,
            one[looked_at],
            ROWS,
            self.subject.rows(other[looked_at]),
            f"the rows of {second}{why}",
        )

    @property
    def has_precomputed(self) -> Bools:
        has: Bools = self.operand("precomputed_indexes") != 0
        return has

    def no_precomputed_if_simple(self) -> None:
        self.require(
            ~(self.has_precomputed & self.has(Property.SIMPLE)),
            "precomputed_indexes are given to the simple",
        )

    def precomputed_fit(
        self, rows_in: commands.Table, rows_out: commands.Table, *, backward: bool
    ) -> None:
        """Checks the precomputed indexes against the component and the rows of both sides."""
        numbers = self.operand("precomputed_indexes")
        for i in where(~self.has(Property.SIMPLE)).tolist():
            name, component = self.subject.component(int(self.component[i]))
            indexes = self.subject.computation.precomputed_indexes[numbers[i]]
            misfit: str | None
            found = None if indexes is None else type(indexes)
            if found is not component.INDEXES:
                misfit = f"are {_name_of(found)}, expected {_name_of(component.INDEXES)}"
            else:
                sizes = int(rows_in[i]), int(rows_out[i])
                misfit = indexes and indexes.misfit(component, *sizes, backward=backward)
            if misfit:
                command = int(self.at[i])
                self.subject.fail(
                    f"{self.subject.name(command)}: precomputed_indexes = {numbers[i]} {misfit} "
                    f"(component '{name}' ({component.type}))",
                    command,
                )

    def contiguous(self, operand: str, wanted: Property) -> None:
        needed = self.has(wanted)
        if not needed.any():
            return
        value = self.operand(operand)
        full = self.subject.analysis.layout.is_full_width[value]
        self.require(
            full | ~needed | (value == 0),
            f"{operand} is narrower than its matrix, but rows without gaps are needed by",
        )

    def apart(self, read: str, written: str, in_place: Property | None) -> None:
        """Checks that two operands do not overlap, unless they are equal and may be in place."""
        one, other = self.operand(read), self.operand(written)
        overlap = self.subject.analysis.layout.overlap(one, other)
        if not overlap.any():
            return
        if in_place is None:
            self.require(~overlap, f"{written} overlaps {read}, for")
            return
        same = same_place(self.subject, one, other)
        self.require(~overlap | same, f"{written} overlaps {read} without being the same, for")
        self.require(
            ~overlap | self.has(in_place),
            f"{written} and {read} are the same submatrix: no in-place computation for",
        )


def _check_propagates(calls: _Calls) -> None:
    simple = calls.has(Property.SIMPLE)
    calls.no_precomputed_if_simple()
    input_ = calls.side("input", calls.input_dim, "input")
    output = calls.side("output", calls.output_dim, "output")
    calls.require((input_ != 0) | ~simple, "no input is given to the simple")
    calls.require((input_ != 0) | ~calls.has_precomputed, "no input is given to the non-simple")
    calls.same_rows("output", "input", simple, ": the component is simple")
    calls.apart("input", "output", Property.PROPAGATE_IN_PLACE)
    calls.contiguous("input", Property.INPUT_CONTIGUOUS)
    calls.contiguous("output", Property.OUTPUT_CONTIGUOUS)
    rows = calls.subject.rows
    calls.precomputed_fit(rows(input_), rows(output), backward=False)


def _check_stored_statistics(calls: _Calls) -> None:
    calls.require(calls.has(Property.STORES_STATS), "statistics are stored that are not kept by")
    calls.side("input", calls.input_dim, "input")
    calls.side("output", calls.output_dim, "output")
    calls.same_rows("output", "input", calls.has(Property.SIMPLE), ": the component is simple")


def _check_backprops(calls: _Calls) -> None:
    simple = calls.has(Property.SIMPLE)
    everywhere = np.ones(len(calls.at), dtype=np.bool_)
    calls.no_precomputed_if_simple()
    input_value = calls.side("input_value", calls.input_dim, "input")
    output_value = calls.side("output_value", calls.output_dim, "output")
    output_deriv = calls.side("output_deriv", calls.output_dim, "output")
    input_deriv = calls.side("input_deriv", calls.input_dim, "input")
    calls.require(
        (input_value != 0)
        | ~calls.has(Property.BACKPROP_NEEDS_INPUT)
        | ~(simple | calls.has_precomputed),
        "input_value is not given, but needed by",
    )
    calls.require(
        (output_value != 0) | ~calls.has(Property.BACKPROP_NEEDS_OUTPUT),
        "output_value is not given, but needed by",
    )
    updates = calls.subject.opcodes[calls.at] == commands.Backprop.OPCODE
    effective = (input_deriv != 0) | (calls.has(Property.UPDATABLE) & updates)
    calls.require(effective, "neither an input derivative nor a model update is wanted of")
    calls.same_rows("input_value", "input_deriv", everywhere, "")
    calls.same_rows("output_value", "output_deriv", everywhere, "")
    calls.same_rows("output_deriv", "input_deriv", simple, ": the component is simple")
    calls.same_rows("output_deriv", "input_value", simple, ": the component is simple")
    calls.apart("output_deriv", "input_deriv", Property.BACKPROP_IN_PLACE)
    calls.apart("input_value", "input_deriv", None)
    calls.apart("output_value", "input_deriv", None)
    calls.apart("input_value", "output_deriv", None)
    calls.apart("output_value", "output_deriv", None)
    for operand in ("input_value", "input_deriv"):
        calls.contiguous(operand, Property.INPUT_CONTIGUOUS)
    for operand in ("output_value", "output_deriv"):
        calls.contiguous(operand, Property.OUTPUT_CONTIGUOUS)
    rows = calls.subject.rows
    rows_in = np.maximum(rows(input_value), rows(input_deriv))
    calls.precomputed_fit(rows_in, rows(output_deriv), backward=True)


def _name_of(indexes_type: IndexesType) -> str:
    return "none" if indexes_type is None else indexes_type.__name__


def same_place(subject: Subject, one: Ids, other: Ids) -> Bools:
    """Returns for pairs of submatrices whether they have the same elements."""
    submatrices = subject.computation.submatrices
    same: Bools = (submatrices.take(one, axis=0) == submatrices.take(other, axis=0)).all(axis=1)
    return same


_ONE = commands.alpha_bits(1.0)
_TO_ROWS = (commands.CopyToRowsMulti, commands.AddToRowsMulti)


def check_rows(subject: Subject) -> None:
    """Checks SetConst and all copies and sums of matrices and rows.

    1. Input and output have the same number of columns, and of rows where no list selects rows.
    2. A list has an entry for each row, and every row that it names exists.
    3. Input and output do not overlap; only MatrixCopy may have one matrix as both, to scale it by
       something other than 1.
    4. A list that names the rows to write to names no element twice.
    """
    if len(at := subject.positions(commands.MatrixCopy, commands.MatrixAdd)):
        _check_matrix_commands(subject, at)
    if len(at := subject.positions(commands.CopyRows, commands.AddRows)):
        _check_lists(subject, at, "indexes", "name row", last=1)
    if len(at := subject.positions(commands.AddRowRanges)):
        _check_lists(subject, at, "indexes_ranges", "end at row", last=0)
    if len(at := subject.positions(commands.CopyRowsMulti, commands.AddRowsMulti, *_TO_ROWS)):
        _check_lists_of_submatrices(subject, at)


def _check_matrix_commands(subject: Subject, at: Ids) -> None:
    output = subject.operand(at, commands.MatrixCopy, "output")
    given = subject.operand(at, commands.MatrixCopy, "input")
    for axis, text in ((ROWS, "the rows of output"), (COLS, "the columns of output")):
        expected = subject.computation.submatrices[output, axis]
        subject.require_size(at, "input", given, axis, expected, text)
    scales_itself = same_place(subject, output, given)
    scales_itself &= subject.opcodes[at] == commands.MatrixCopy.OPCODE
    scales_itself &= subject.table[at, commands.ALPHA_COLUMN] != _ONE
    _require_apart(subject, at[~scales_itself], output[~scales_itself], given[~scales_itself])


def _require_apart(subject: Subject, at: Ids, output: Ids, given: Ids) -> None:
    subject.require(
        ~subject.analysis.layout.overlap(output, given),
        at,
        lambda i: (
            f"output = {subject.describe(int(output[i]))} overlaps "
            f"input = {subject.describe(int(given[i]))}"
        ),
    )


def _require_length(subject: Subject, at: Ids, name: str, lists: Sequence[commands.Table]) -> None:
    """Checks that the list each command names has an entry for each row of its first operand."""
    first = subject.table[at, 2]
    rows = subject.rows(first)
    lengths = np.array([len(each) for each in lists], dtype=np.int64)
    subject.require(
        lengths == rows,
        at,
        lambda i: (
            f"{name} has {lengths[i]} entries, expected {rows[i]} "
            f"(the rows of {subject.describe(int(first[i]))})"
        ),
    )


def _check_lists(subject: Subject, at: Ids, name: str, verb: str, *, last: int) -> None:
    """Checks columns, and lists of rows of the input.

    Args:
        subject: The computation.
        at: The commands.
        name: The operand that is the number of the list.
        verb: What the numbers of a list do, for the message.
        last: The largest number allowed, counted back from the number of rows.
    """
    like = commands.CopyRows  # AddRowRanges has its operands in the same columns
    output, given = subject.operand(at, like, "output"), subject.operand(at, like, "input")
    subject.require_size(at, "input", given, COLS, subject.cols(output), "the columns of output")
    of_name = getattr(subject.computation, name)
    lists = [of_name[number] for number in subject.operand(at, like, "indexes").tolist()]
    _require_length(subject, at, name, lists)
    largest = np.array([each.max(initial=-1) for each in lists], dtype=np.int64)
    rows = subject.rows(given)
    subject.require(
        largest <= rows - last,
        at,
        lambda i: (
            f"{name} {verb} {largest[i]} of input = {subject.describe(int(given[i]))}, "
            f"which has {rows[i]} rows"
        ),
    )
    _require_apart(subject, at, output, given)


def _check_lists_of_submatrices(subject: Subject, at: Ids) -> None:
    first = subject.operand(at, commands.CopyRowsMulti, "output")
    numbers = subject.operand(at, commands.CopyRowsMulti, "indexes_multi")
    lists = [subject.computation.indexes_multi[number] for number in numbers.tolist()]
    _require_length(subject, at, "indexes_multi", lists)
    splits, submatrix = subject.analysis.pair_lists.of(numbers)
    counts = splits[1:] - splits[:-1]
    owner, firsts = np.repeat(at, counts), np.repeat(first, counts)
    cols = subject.cols(firsts)
    subject.require_size(
        owner, "a submatrix in indexes_multi", submatrix, COLS, cols, "the columns of the other"
    )
    _require_apart(subject, owner, firsts, submatrix)
    for which in CommandKinds.of(*_TO_ROWS).positions(subject.opcodes[at]).tolist():
        _require_distinct_targets(subject, int(at[which]), lists[which])


def _require_distinct_targets(subject: Subject, command: int, pairs: commands.Table) -> None:
    """Checks that no two entries share elements, even through different submatrices."""
    submatrix, row = pairs.T
    given = where(submatrix > 0)
    submatrix = submatrix[given]
    row = row[given] + subject.computation.submatrices[:, ROW_OFFSET].take(submatrix)
    # Most lists name no row of a matrix twice; then the columns do not matter.
    rows = (subject.analysis.layout.matrix_of.take(submatrix) << 32) | row
    rows.sort()
    if (rows[1:] != rows[:-1]).all():
        return
    places = subject.computation.submatrices.take(submatrix, axis=0)
    order = np.lexsort((places[:, 3], row, places[:, 0]))
    matrix, row, col = places[order, 0], row[order], places[order, 3]
    col_end = col + places[order, 4]
    clash = (matrix[1:] == matrix[:-1]) & (row[1:] == row[:-1]) & (col[1:] < col_end[:-1])
    if clash.any():
        bad = int(np.flatnonzero(clash)[0])
        one, other = sorted(given[order[bad : bad + 2]].tolist())
        subject.fail(
            f"{subject.name(command)}: entries {one} and {other} of indexes_multi, "
            f"{pairs[one].tolist()} and {pairs[other].tolist()}, name the same elements of "
            f"m{matrix[bad]}",
            command,
        )
