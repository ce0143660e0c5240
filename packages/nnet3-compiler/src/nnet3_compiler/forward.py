"""Forward commands: the value of every step, from those of earlier ones; commands of components."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nnet3_computation import ComputationRequest, arrays, commands
from nnet3_computation.commands import TABLE_WIDTH, Table, command_rows
from nnet3_descriptors.components import ComponentProperties, PrecomputedIndexes
from nnet3_descriptors.values import frozen
from numpy.typing import NDArray

from nnet3_compiler import shortcut, step_info
from nnet3_compiler.locations import PieceKind, Pieces
from nnet3_compiler.steps.building import Steps
from nnet3_compiler.steps.network import Network, NodeKind

PLACES_PER_STEP = 1 << 32
"""Commands of step s have places from s * PLACES_PER_STEP on."""

AFTER_RANGES = PLACES_PER_STEP // 2
"""Ranges come first in a step: a sum that starts as a copy of a matrix may take over its memory."""


class Emission:
    """Commands with their places, and the lists of rows that they refer to.

    Attributes:
        lists: The lists by the fields of `NnetComputation`, for all emissions of a computation.
        tables: Pieces of the command table.
        places: For each piece the (count,) places; commands with equal places keep their order.
    """

    def __init__(self, lists: dict[str, list[arrays.IntArray]]) -> None:
        self.lists = lists
        self.tables: list[Table] = []
        self.places: list[NDArray[np.int64]] = []

    def add(self, place: NDArray[np.int64] | NDArray[np.int32] | int, table: Table) -> None:
        """Adds commands; `place` is (count,) or one place for all."""
        if len(table):
            self.tables.append(table)
            self.places.append(np.broadcast_to(np.asarray(place, np.int64), len(table)))

    def add_list(self, field: str, rows: arrays.IntArray) -> int:
        """Adds a list of rows, which no other object may hold; returns its number."""
        self.lists[field].append(frozen(rows))
        return len(self.lists[field]) - 1

    def ordered(self) -> tuple[Table, NDArray[np.int64]]:
        """Returns all commands in the order of their places, and the places."""
        if not self.tables:
            return np.zeros((0, TABLE_WIDTH), np.int32), np.zeros(0, np.int64)
        places = np.concatenate(self.places)
        order = np.argsort(places, kind="stable")
        return np.concatenate(self.tables)[order], places[order]


def emit_sums(pieces: Pieces, info: step_info.StepInfo, emission: Emission) -> None:
    """Adds the commands that add up the values of descriptors. All matrices are zero before.

    Constants come first, then one command a piece.

    Args:
        pieces: The input locations.
        info: The submatrices of values.
        emission: Receives the commands.
    """
    size, block = pieces.minibatch.size, pieces.steps.block
    outputs = info.value_part[pieces.step] + pieces.part
    places = pieces.step.astype(np.int64) * PLACES_PER_STEP + np.arange(1, len(pieces.step) + 1)

    def add(
        command_type: type[commands.Command],
        chosen: arrays.IntArray,
        place: int,
        **operands: arrays.IntArray,
    ) -> None:
        alpha, output = pieces.alpha[chosen], outputs[chosen]
        rows = command_rows(command_type, len(chosen), alpha, output=output, **operands)
        emission.add(places[chosen] + place, rows)

    _emit_constants(pieces, info, emission)
    chosen = pieces.of_kind(PieceKind.RANGE)
    source = info.submatrices.parts(
        info.value[pieces.source_step[chosen]],
        pieces.source_first[chosen] * size,
        pieces.num_rows[chosen] * size,
    )
    add(commands.MatrixAdd, chosen, 0, input=source)
    chosen = pieces.of_kind(PieceKind.ROWS)
    source_step = pieces.source_step[chosen]
    numbers = [
        emission.add_list(
            "indexes", pieces.minibatch.rows(pieces.rows(piece), source_block, own_block)
        )
        for piece, source_block, own_block in zip(
            chosen.tolist(),
            block[source_step].tolist(),
            block[pieces.step[chosen]].tolist(),
            strict=True,
        )
    ]
    indexes = np.array(numbers, np.int32)
    add(commands.AddRows, chosen, AFTER_RANGES, input=info.value[source_step], indexes=indexes)
    chosen = pieces.of_kind(PieceKind.SCATTERED)
    numbers = [
        emission.add_list("indexes_multi", pieces.repeated(piece, pieces.pairs(piece, info.value)))
        for piece in chosen.tolist()
    ]
    indexes = np.array(numbers, np.int32)
    add(commands.AddRowsMulti, chosen, AFTER_RANGES, indexes_multi=indexes)


def _emit_constants(pieces: Pieces, info: step_info.StepInfo, emission: Emission) -> None:
    step = pieces.constant_step.astype(np.int64)
    if not len(step):
        return
    whole = info.value_part[step] + pieces.constant_part
    runs = [
        (number, first, last - first)
        for number in range(len(step))
        for first, last in _constant_runs(pieces, number)
    ]
    number, first, count = np.array(runs, np.int32).T
    output = info.submatrices.parts(whole[number], first, count)
    alpha = pieces.constant[number]
    rows = command_rows(commands.SetConst, len(number), alpha, output=output)
    emission.add(step[number] * PLACES_PER_STEP, rows)


def _constant_runs(pieces: Pieces, number: int) -> list[tuple[int, int]]:
    """Returns the ranges of rows, of all sequences, that a constant is set in."""
    minibatch = pieces.minibatch
    first, count = pieces.constant_rows[number].tolist()
    block = int(pieces.steps.block[pieces.constant_step[number]])
    if minibatch.size == 1 or (first % block == 0 and count % block == 0):
        return [(first * minibatch.size, (first + count) * minibatch.size)]
    pattern = np.arange(first, first + count, dtype=np.int32)
    rows = np.sort(minibatch.rows(pattern, block, len(pattern)))
    ends = arrays.where(np.diff(rows) != 1)
    begins = np.concatenate([[0], ends + 1])
    ends = np.append(ends, len(rows) - 1)
    return list(zip(rows[begins].tolist(), (rows[ends] + 1).tolist(), strict=True))


def emit_components(
    network: Network,
    requests: Sequence[ComputationRequest],
    steps: Steps,
    info: step_info.StepInfo,
    precomputed: arrays.IntArray,
    forward: Emission,
    backward: Emission,
) -> None:
    """Adds the commands of components: Propagate, StoreStats where it is wanted, and Backprop.

    A memo is kept if the backward computation or StoreStats needs it.

    Args:
        network: The network.
        requests: The request of each segment.
        steps: The steps.
        info: The submatrices of values and derivatives.
        precomputed: (S,) int32, the precomputed indexes of each step; 0 for none.
        forward: Receives the forward commands.
        backward: Receives the backward commands of steps that have a derivative.
    """
    is_computed = (network.kind[steps.node] == NodeKind.COMPONENT) & ~steps.is_given
    step = arrays.where(is_computed)
    node, value, deriv = steps.node[step], info.value, info.deriv
    component, properties = network.component[node], network.properties[node]

    def has(wanted: ComponentProperties) -> arrays.Bools:
        """Which of these steps have a component with a property."""
        having: arrays.Bools = properties & int(wanted) != 0
        return having

    wants_stats = np.array([request.store_component_stats for request in requests])
    stores_stats = has(ComponentProperties.STORES_STATS) & wants_stats[steps.segment[step]]
    uses_memo = has(ComponentProperties.USES_MEMO)
    keeps_memo = uses_memo & ((deriv[step] > 0) | stores_stats)
    memo = np.where(keeps_memo, np.cumsum(keeps_memo), 0)
    rows = command_rows(
        commands.Propagate,
        len(step),
        component=component,
        precomputed_indexes=precomputed[step],
        input=value[step - 1],
        output=value[step],
        memo=memo,
    )
    forward.add(step * PLACES_PER_STEP, rows)
    at = arrays.where(stores_stats)
    rows = command_rows(
        commands.StoreStats,
        len(at),
        component=component[at],
        output=value[step[at]],
        memo=memo[at],
    )
    forward.add(step[at] * PLACES_PER_STEP + 1, rows)
    needs_input = has(ComponentProperties.BACKPROP_NEEDS_INPUT)
    needs_output = has(ComponentProperties.BACKPROP_NEEDS_OUTPUT)
    at = arrays.where(deriv[step] > 0)
    step = step[at]
    updates_model = any(request.need_model_derivative for request in requests)
    rows = command_rows(
        commands.Backprop if updates_model else commands.BackpropNoModelUpdate,
        len(at),
        component=component[at],
        precomputed_indexes=precomputed[step],
        input_value=np.where(needs_input[at], value[step - 1], 0),
        output_value=np.where(needs_output[at], value[step], 0),
        output_deriv=deriv[step],
        input_deriv=deriv[step - 1],
        memo=np.where(uses_memo[at], memo[at], 0),
    )
    backward.add((len(steps) - step) * PLACES_PER_STEP, rows)


def precompute_indexes(
    network: Network,
    requests: Sequence[ComputationRequest],
    steps: Steps,
    minibatch: shortcut.Minibatch,
) -> tuple[arrays.IntArray, tuple[PrecomputedIndexes | None, ...]]:
    """Lets components precompute indexes for the rows of their steps.

    Returns:
        (S,) int32, the number of each step's precomputed indexes, 0 for none; and these.
    """
    numbers = np.zeros(len(steps), np.int32)
    found: list[PrecomputedIndexes | None] = [None]
    of_node: dict[int, arrays.IntArray] = {}

    def all_rows(step: int) -> arrays.IntArray:
        """Returns the indexes of all rows of a step, in order: (rows, 3) int32."""
        rows, block = steps.rows_of(step), int(steps.block[step])
        if block > 1:
            return minibatch.indexes(steps.indexes[rows], block)
        # For each row of the pattern all sequences, for all steps of a node at once.
        node = int(steps.node[step])
        own = steps.by_node[steps.node_begin[node] : steps.node_begin[node + 1]]
        first, size = int(steps.begin[own[0]]), minibatch.size
        if node not in of_node:
            end = steps.rows_of(int(own[-1])).stop
            of_node[node] = minibatch.indexes(steps.indexes[first:end], 1)
        return of_node[node][(rows.start - first) * size : (rows.stop - first) * size]

    special = ~network.has(ComponentProperties.SIMPLE) & (network.kind == NodeKind.COMPONENT)
    for step in arrays.where(special[steps.node] & ~steps.is_given).tolist():
        component = network.nnet.components[int(network.component[steps.node[step]])]
        need_backprop = requests[int(steps.segment[step])].needs_derivatives
        precomputed = component.precompute_repeated_indexes(
            steps.indexes[steps.rows_of(step - 1)],
            steps.indexes[steps.rows_of(step)],
            need_backprop,
            minibatch.size,
        )
        if precomputed is NotImplemented:
            inputs, outputs = all_rows(step - 1), all_rows(step)
            precomputed = component.precompute_indexes(inputs, outputs, need_backprop)
        if precomputed is not None:
            numbers[step] = len(found)
            found.append(precomputed)
    return numbers, tuple(found)
