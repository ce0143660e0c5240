"""The commands: the execution of each, as its definition in nnet3_computation says."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from nnet3_computation import ComputationError, commands
from nnet3_descriptors import ComponentProperties

from nnet3_runtime_reference.draws import Array
from nnet3_runtime_reference.formulas import Call, formula_of
from nnet3_runtime_reference.state import State


@functools.singledispatch
def execute(command: commands.Command, state: State) -> None:
    """Runs a command.

    Raises:
        ComputationError: the command cannot run in this state.
    """
    raise NotImplementedError


# -- memory ----------------------------------------------------------------------------------------


@execute.register
def _alloc_undefined(c: commands.AllocMatrixUndefined, state: State) -> None:
    state.matrices.allocate(c.matrix, np.nan)


@execute.register
def _alloc_zeroed(c: commands.AllocMatrixZeroed, state: State) -> None:
    state.matrices.allocate(c.matrix, 0.0)


@execute.register
def _dealloc(c: commands.DeallocMatrix, state: State) -> None:
    state.matrices.free(c.matrix)


@execute.register
def _swap(c: commands.SwapMatrix, state: State) -> None:
    state.matrices.move(c.source, c.destination)


@execute.register
def _compress(c: commands.CompressMatrix, state: State) -> None:
    values = state.matrices.read(c.matrix)
    rounded = round_trip(values, c.compression_type, c.alpha, truncate=bool(c.truncate))
    state.matrices.compress(c.matrix, rounded)


@execute.register
def _decompress(c: commands.DecompressMatrix, state: State) -> None:
    state.matrices.decompress(c.matrix)


# -- components ------------------------------------------------------------------------------------


def _call(state: State, c: Any, **operands: int) -> Call:
    """Returns the arguments that a command gives its component.

    Args:
        state: Where the matrices are.
        c: The command.
        operands: The submatrices x, y, dy and dx; 0, or left out, for a missing one.
    """
    component = state.components[c.component]
    matrices, shape = state.matrices, state.matrices.shape
    x, y, dy, dx = (operands.get(name, 0) for name in ("x", "y", "dy", "dx"))
    rows_in = shape(x or dx)[0]
    rows_out = shape(y or dy or operands.get("out", 0))[0]

    def given(submatrix: int, *size: int) -> Array:
        return matrices.read(submatrix) if submatrix else np.full(size, np.nan, dtype=state.dtype)

    return Call(
        component=component,
        statistics=state.statistics[c.component],
        name=state.nnet.component_names[c.component],
        x=given(x, rows_in, component.input_dim),
        y=given(y, rows_out, component.output_dim),
        dy=given(dy, rows_out, component.output_dim),
        rows_in=rows_in,
        rows_out=rows_out,
        indexes=state.computation.precomputed_indexes[getattr(c, "precomputed_indexes", 0)],
        memo=state.memos.get(c.memo),
        updates=isinstance(c, commands.Backprop),
        draws=state.draws,
        dtype=state.dtype,
    )


@execute.register
def _propagate(c: commands.Propagate, state: State) -> None:
    call = _call(state, c, x=c.input, out=c.output)
    formula = formula_of(call.component)
    memo = formula.memo(call)
    if c.memo:
        state.memos[c.memo] = memo
    values = formula.forward(attrs.evolve(call, memo=memo))
    if call.has(ComponentProperties.PROPAGATE_ADDS) and c.input != c.output:
        state.matrices.add(c.output, values)
    else:
        state.matrices.write(c.output, values)


@execute.register
def _store_stats(c: commands.StoreStats, state: State) -> None:
    call = _call(state, c, x=c.input, y=c.output)
    _change(state, c.component, formula_of(call.component).statistics(call))


@execute.register
def _backprop(c: commands.Backprop, state: State) -> None:
    call = _backward_call(c, state)
    formula = formula_of(call.component)
    call = attrs.evolve(call, decision=formula.decide(call))
    _set_input_derivative(c, call, state)
    for name, gradient in formula.gradient(call).items():
        state.gradients[c.component][name] += gradient
    _change(state, c.component, formula.backward_statistics(call))


@execute.register
def _backprop_no_model_update(c: commands.BackpropNoModelUpdate, state: State) -> None:
    _set_input_derivative(c, _backward_call(c, state), state)


def _backward_call(c: commands.Backprop | commands.BackpropNoModelUpdate, state: State) -> Call:
    return _call(state, c, x=c.input_value, y=c.output_value, dy=c.output_deriv, dx=c.input_deriv)


def _set_input_derivative(
    c: commands.Backprop | commands.BackpropNoModelUpdate, call: Call, state: State
) -> None:
    """Runs a component backward for its input derivative, if that is wanted."""
    if not c.input_deriv:
        return
    values = formula_of(call.component).backward(call)
    if call.has(ComponentProperties.BACKPROP_ADDS) and c.input_deriv != c.output_deriv:
        state.matrices.add(c.input_deriv, values)
    else:
        state.matrices.write(c.input_deriv, values)


def _change(state: State, component: int, changes: Mapping[str, Any]) -> None:
    """Gives a component other statistics."""
    if changes:
        state.statistics[component].update(changes)
        state.components[component] = state.components[component].replace(**changes)


# -- copies and sums -------------------------------------------------------------------------------


@execute.register
def _set_const(c: commands.SetConst, state: State) -> None:
    values = np.full(state.matrices.shape(c.output), c.alpha, dtype=state.dtype)
    state.matrices.write(c.output, values)


@execute.register
def _matrix_copy(c: commands.MatrixCopy, state: State) -> None:
    state.matrices.write(c.output, c.alpha * state.matrices.read(c.input))


@execute.register
def _matrix_add(c: commands.MatrixAdd, state: State) -> None:
    state.matrices.add(c.output, c.alpha * state.matrices.read(c.input))


def _rows(c: commands.CopyRows | commands.AddRows, state: State) -> Array:
    """Returns the rows of the input that a list names, times alpha; zeros for -1."""
    rows, values = state.computation.indexes[c.indexes], state.matrices.read(c.input)
    found = np.zeros((len(rows), values.shape[1]), dtype=state.dtype)
    found[rows != -1] = c.alpha * values[rows[rows != -1]]
    return found


@execute.register
def _copy_rows(c: commands.CopyRows, state: State) -> None:
    state.matrices.write(c.output, _rows(c, state))


@execute.register
def _add_rows(c: commands.AddRows, state: State) -> None:
    state.matrices.add(c.output, _rows(c, state))


def _rows_multi(c: commands.CopyRowsMulti | commands.AddRowsMulti, state: State) -> Array:
    """Returns the rows that a list of pairs names, times alpha; zeros for (-1, -1)."""
    places = state.computation.indexes_multi[c.indexes_multi]
    return c.alpha * state.matrices.read_rows(places, state.matrices.shape(c.output)[1])


@execute.register
def _copy_rows_multi(c: commands.CopyRowsMulti, state: State) -> None:
    state.matrices.write(c.output, _rows_multi(c, state))


@execute.register
def _add_rows_multi(c: commands.AddRowsMulti, state: State) -> None:
    state.matrices.add(c.output, _rows_multi(c, state))


@execute.register
def _copy_to_rows_multi(c: commands.CopyToRowsMulti, state: State) -> None:
    places = state.computation.indexes_multi[c.indexes_multi]
    state.matrices.write_rows(places, c.alpha * state.matrices.read(c.input))


@execute.register
def _add_to_rows_multi(c: commands.AddToRowsMulti, state: State) -> None:
    places = state.computation.indexes_multi[c.indexes_multi]
    values = state.matrices.read(c.input)
    before = state.matrices.read_rows(places, values.shape[1])
    state.matrices.write_rows(places, before + c.alpha * values)


@execute.register
def _add_row_ranges(c: commands.AddRowRanges, state: State) -> None:
    values = state.matrices.read(c.input)
    sums = np.zeros(state.matrices.shape(c.output), dtype=state.dtype)
    ranges = state.computation.indexes_ranges[c.indexes_ranges]
    for row, (begin, end) in enumerate(ranges.tolist()):
        if begin != -1:
            sums[row] = values[begin:end].sum(axis=0)
    state.matrices.add(c.output, c.alpha * sums)


# -- the world outside, and control ----------------------------------------------------------------


@execute.register
def _accept_input(c: commands.AcceptInput, state: State) -> None:
    state.matrices.allocate(c.matrix, np.nan)
    state.matrices.write(c.matrix, state.given.pop(state.nnet.nodes[c.node].name))


@execute.register
def _provide_output(c: commands.ProvideOutput, state: State) -> None:
    state.provided[state.nnet.nodes[c.node].name] = state.matrices.read(c.matrix)


@execute.register
def _nothing(
    c: commands.NoOperation
    | commands.NoOperationMarker
    | commands.NoOperationLabel
    | commands.GotoLabel,
    state: State,
) -> None:
    """Does nothing: the computer decides which command is next."""


INTEGERS = {1: (-128, 127), 2: (0, 255), 3: (-32768, 32767), 4: (0, 65535)}
"""The smallest and the largest integer of each type of compression."""
UINT8, ONE_BIT = 2, 5


def round_trip(values: Array, kind: int, limit: float, *, truncate: bool) -> Array:
    """Returns values as they are after compression and decompression.

    With a unit of u = limit / (largest integer), v becomes u times the integer nearest to v / u
    (the even one if two are equally near), limited to the smallest and the largest integer.
    One bit, or uint8 with the limit 0, tells whether v is positive: v becomes 1 or 0.

    Args:
        values: Of any shape.
        kind: 1 int8, 2 uint8, 3 int16, 4 uint16, 5 one bit.
        limit: The range of the values.
        truncate: Whether values may lie beyond the range. If not, such values become NaN.

    Raises:
        ComputationError: the type is unknown, or the limit is not valid.
    """
    if kind == ONE_BIT or (kind == UINT8 and limit == 0.0):
        return (values > 0.0).astype(values.dtype)
    if kind not in INTEGERS or not limit > 0.0:
        raise ComputationError(f"there is no compression of type {kind} with the range {limit:g}")
    smallest, largest = INTEGERS[kind]
    unit = limit / largest
    nearest = np.rint(values / unit)
    kept = np.clip(nearest, smallest, largest)
    if not truncate:
        kept[nearest != kept] = np.nan
    found: Array = (kept * unit).astype(values.dtype)
    return found
