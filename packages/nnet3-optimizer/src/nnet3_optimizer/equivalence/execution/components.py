"""Symbolic execution of components.

Forward, NoOp and BackpropTruncation are copies. Other components are unknown functions. A component
that is simple, has no memo and is not random is a function of each row; its updates and statistics
are sums over rows. Any other component is a function of all rows together. Statistics over time are
functions of ranges of rows; see `statistics`.
"""

from __future__ import annotations

from collections.abc import Hashable

from nnet3_computation.commands import Backprop, BackpropNoModelUpdate, Propagate, StoreStats

from nnet3_optimizer.equivalence.execution import statistics
from nnet3_optimizer.equivalence.execution.copies import Command, transfer
from nnet3_optimizer.equivalence.execution.symbolic_state import SymbolicState
from nnet3_optimizer.equivalence.symbols.keys import ABSENT_ROW
from nnet3_optimizer.equivalence.symbols.prime_field import element_of
from nnet3_optimizer.errors import EquivalenceError

_NONE = 0


def _propagate(state: SymbolicState, command: Command) -> None:
    component, precomputed, given, output, memo = command[2:7]
    kind = state.components[component]
    adds = kind.propagate_adds and not state.same_place(given, output)
    if kind.scale is not None:
        transfer(state, output, given, element_of(kind.scale), adds=adds)
        return
    if kind.works_by_rows:
        function = state.forward[component]
        if 0 < state.row_blocks[output] == state.row_blocks[given]:
            key = state.row_key(given)
            if key is not None:
                state.write_row(output, function.of_row(key), adds=adds)
                return
        state.require_same_order(given, output)
        state.write(output, state.call(function, state.read(given)), adds=adds)
        return
    indexes = statistics.ranges_of(state, precomputed)
    if indexes is not None:
        rows = statistics.forward(state, component, indexes, given, output)
        state.write(output, rows, adds=adds)
        return
    about: list[Hashable] = [
        component,
        state.precomputed_number(precomputed),
        state.block_key(given),
    ]
    if kind.is_random:
        about.append(state.draws.get(component, 0))
        state.draws[component] = state.draws.get(component, 0) + 1
    if memo:
        state.memos[memo] = state.unknowns.number(("memo", *about))
    _write_whole(state, output, ("forward", *about), adds=adds)


def _write_whole(
    state: SymbolicState, output: int, about: tuple[Hashable, ...], *, adds: bool
) -> None:
    """Writes a result that was computed from all rows together."""
    name = state.unknowns.number(about), state.pattern.blocks[output]
    if state.row_blocks[output]:
        state.write_row(output, state.unknowns.block(name, 1)[0], adds=adds)
    else:
        rows = state.unknowns.block(name, state.rows_of(output))
        state.write_unknowns(output, rows, adds=adds)


def _store_stats(state: SymbolicState, command: Command) -> None:
    # Statistics depend on the output or the memo; the input adds nothing.
    component, _, output, memo = command[2:6]
    function = state.unknowns.function(("stats", component))
    if state.components[component].works_by_rows:
        contribution = state.total(state.call(function, state.read(output)), output)
    else:
        about = state.block_key(output), state.memos.get(memo, 0)
        contribution = state.total_of_block(function.of_row(about), output)
    state.behaviour.stats[component].add(contribution, state.command)


def _backprop(state: SymbolicState, command: Command) -> None:
    _backward(state, command, updates=True)


def _backprop_no_update(state: SymbolicState, command: Command) -> None:
    _backward(state, command, updates=False)


def _backward(state: SymbolicState, command: Command, *, updates: bool) -> None:
    _, _, component, precomputed, given, output, output_deriv, input_deriv, memo = command
    kind = state.components[component]
    values = (
        given if kind.backprop_needs_input else _NONE,
        output if kind.backprop_needs_output else _NONE,
        output_deriv,
    )
    updates = updates and kind.is_updatable
    adds = kind.backprop_adds and not state.same_place(input_deriv, output_deriv)
    if kind.works_by_rows:
        contribution = _backward_by_rows(
            state, component, values, input_deriv, adds=adds, updates=updates
        )
    elif (indexes := statistics.ranges_of(state, precomputed)) is not None:
        rows = statistics.backward(state, component, indexes, values, input_deriv)
        state.write(input_deriv, rows, adds=adds)
        return
    else:
        if memo and memo not in state.memos:
            raise EquivalenceError(
                f"c{state.command} uses memo {memo}, which no Propagate made", what="memo"
            )
        about = (
            "backward",
            component,
            state.precomputed_number(precomputed),
            *(state.block_key(each) for each in values),
            state.memos.get(memo, 0),
        )
        if updates:
            contribution = state.unknowns.function("backward").of_row(about)
            contribution = state.total_of_block(contribution, output_deriv)
        if input_deriv:
            _write_whole(state, input_deriv, about, adds=adds)
    if updates:
        state.behaviour.updates[component].add(contribution, state.command)


def _backward_by_rows(
    state: SymbolicState,
    component: int,
    values: tuple[int, int, int],
    input_deriv: int,
    *,
    adds: bool,
    updates: bool,
) -> int:
    """Writes an unknown for each row of the operands, which may be missing.

    Returns:
        The term that they add to the update of the component.
    """
    input_value, output_value, output_deriv = values
    function = state.backward[component]
    if state.are_rows(output_deriv, input_value, output_value, input_deriv):
        row = (
            state.row_key(input_value) if input_value else ABSENT_ROW,
            state.row_key(output_value) if output_value else ABSENT_ROW,
            state.row_key(output_deriv),
        )
        if None not in row:
            value = function.of_row(row)
            if input_deriv:
                state.write_row(input_deriv, value, adds=adds)
            return state.total_of_block(value, output_deriv) if updates else 0
    # A rectified linear unit reads its output only to see whether it is positive.
    is_relu = state.components[component].is_relu
    arguments = []
    for each in (*values, input_deriv):
        if each:
            state.require_same_order(each, output_deriv)
    for each in values:
        only_signs = is_relu and each == output_value
        arguments.append(state.read(each, only_signs=only_signs) if each else None)
    rows = state.call(function, *arguments)
    if input_deriv:
        state.write(input_deriv, rows, adds=adds)
    return state.total(rows, output_deriv) if updates else 0


COMPONENT_CALLS = {
    Propagate.OPCODE: _propagate,
    StoreStats.OPCODE: _store_stats,
    Backprop.OPCODE: _backprop,
    BackpropNoModelUpdate.OPCODE: _backprop_no_update,
}
"""The function that executes each of these commands, by opcode."""
