"""Symbolic execution of what components do.

NoOp and BackpropTruncation are copies forward. Other components are unknown functions: of each row
where they are simple, have no memo and are not random, else of all rows together. What they add to
their update, and to their statistics, is a sum over rows in the first case. Statistics over time
are functions of ranges of rows; see `statistics`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from nnet3_compiler.commands import Backprop, BackpropNoModelUpdate, Propagate, StoreStats

from nnet3_optimizer.equivalence import statistics
from nnet3_optimizer.equivalence.behaviour import Contributions
from nnet3_optimizer.equivalence.copies import Command
from nnet3_optimizer.equivalence.field import PRIME, element_of
from nnet3_optimizer.equivalence.state import State
from nnet3_optimizer.errors import EquivalenceError

_NONE = 0


def _propagate(state: State, command: Command) -> None:
    component, precomputed, given, output, memo = command[2:7]
    function_of = state.components[component]
    adds = function_of.propagate_adds and not state.same_place(given, output)
    if function_of.scale is not None:
        state.require_same_order(given, output)
        state.write(output, state.read(given).scaled(element_of(function_of.scale)), adds=adds)
        return
    if function_of.works_by_rows:
        state.require_same_order(given, output)
        rows = state.unknowns.values(("forward", component), state.keys(given))
        state.write_unknowns(output, rows, adds=adds)
        return
    indexes = statistics.ranges_of(state, precomputed)
    if indexes is not None:
        rows = statistics.forward(state, component, indexes, given, output)
        state.write_unknowns(output, rows, adds=adds)
        return
    about: list[Hashable] = [
        component,
        state.precomputed_number(precomputed),
        state.block_number(given),
    ]
    if function_of.is_random:
        about.append(state.draws.get(component, 0))
        state.draws[component] = state.draws.get(component, 0) + 1
    if memo:
        state.memos[memo] = state.unknowns.number(("memo", *about))
    _write_whole(state, output, ("forward", *about), adds=adds)


def _write_whole(state: State, output: int, about: tuple[Hashable, ...], *, adds: bool) -> None:
    """Writes what was computed from all rows together."""
    name = (*about, state.pattern.blocks[output])
    rows = state.unknowns.values(name, range(state.rows_of(output)))
    state.write_unknowns(output, rows, adds=adds)


def _store_stats(state: State, command: Command) -> None:
    # Statistics are of the output, or of what the memo holds: the input says nothing more.
    component, _, output, memo = command[2:6]
    name = "stats", component
    if state.components[component].works_by_rows:
        contributions = state.unknowns.values(name, state.keys(output))
    else:
        about = state.block_number(output), state.memos.get(memo, 0)
        contributions = state.unknowns.values(name, [about])
    stats = state.behaviour.stats.setdefault(component, Contributions())
    stats.add(sum(contributions) * state.pattern.count(output) % PRIME, state.command)


def _backprop(state: State, command: Command) -> None:
    _backward(state, command, updates=True)


def _backprop_no_update(state: State, command: Command) -> None:
    _backward(state, command, updates=False)


def _backward(state: State, command: Command, *, updates: bool) -> None:
    component, precomputed, input_value, output_value = command[2:6]
    output_deriv, input_deriv, memo = command[6:9]
    function_of = state.components[component]
    if not function_of.backprop_needs_input:
        input_value = _NONE
    if not function_of.backprop_needs_output:
        output_value = _NONE
    values = input_value, output_value, output_deriv
    indexes = statistics.ranges_of(state, precomputed)
    adds = function_of.backprop_adds and not state.same_place(input_deriv, output_deriv)
    if function_of.works_by_rows:
        for each in (input_value, output_value, input_deriv):
            if each:
                state.require_same_order(each, output_deriv)
        contributions = _backward_by_rows(state, component, values)
        if input_deriv:
            state.write_unknowns(input_deriv, contributions, adds=adds)
    elif indexes is not None:
        contributions = statistics.backward(state, component, indexes, values, input_deriv)
        state.write_unknowns(input_deriv, contributions, adds=adds)
    else:
        if memo and memo not in state.memos:
            raise EquivalenceError(
                f"c{state.command} uses memo {memo}, which no Propagate made", what="memo"
            )
        about = (
            "backward",
            component,
            state.precomputed_number(precomputed),
            *(state.block_number(each) for each in values),
            state.memos.get(memo, 0),
        )
        contributions = state.unknowns.values("backward", [about])
        if input_deriv:
            _write_whole(state, input_deriv, about, adds=adds)
    if updates and function_of.is_updatable:
        update = state.behaviour.updates.setdefault(component, Contributions())
        contribution = sum(contributions) * state.pattern.count(output_deriv) % PRIME
        update.add(contribution, state.command)


def _backward_by_rows(state: State, component: int, values: tuple[int, int, int]) -> list[int]:
    """Returns an unknown for each row of the three operands, of which some may be missing."""
    # A rectified linear unit looks at its output only to see whether it is positive.
    input_value, output_value, output_deriv = values
    keys: list[Iterable[Hashable]] = []
    if input_value:
        keys.append(state.keys(input_value))
    if output_value:
        keys.append(state.keys(output_value, only_signs=state.components[component].is_relu))
    keys.append(state.keys(output_deriv))
    name = "backward", component, bool(input_value), bool(output_value)
    return state.unknowns.values(name, zip(*keys, strict=True))


COMPONENT_CALLS = {
    Propagate.OPCODE: _propagate,
    StoreStats.OPCODE: _store_stats,
    Backprop.OPCODE: _backprop,
    BackpropNoModelUpdate.OPCODE: _backprop_no_update,
}
"""What each of these commands does, by opcode."""
