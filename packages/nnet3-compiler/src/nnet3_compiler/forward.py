"""Forward commands: the value of every step, from those of earlier ones; commands of components."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from nnet3_computation import ComputationRequest, arrays, commands
from nnet3_computation.commands import Emission, command_rows
from nnet3_descriptors.components import ComponentProperties, PrecomputedIndexes
from numpy.typing import NDArray

from nnet3_compiler import shortcut, step_info
from nnet3_compiler.locations import PieceKind, Pieces
from nnet3_compiler.steps.network import Network, NodeKind
from nnet3_compiler.steps.steps import Steps

PLACES_PER_STEP = 1 << 32
"""Commands of step s have places from s * PLACES_PER_STEP on."""

AFTER_RANGES = PLACES_PER_STEP // 2
"""Ranges come first in a step: a sum that starts as a copy of a matrix may take over its memory."""


@attrs.frozen(kw_only=True, eq=False)
class DescriptorForward:
    """Emits the commands that add up the values of descriptors. All matrices are zero before.

    Attributes:
        pieces: The classified input locations.
        info: The submatrices of values.
        lists: Receives lists of rows.
    """

    pieces: Pieces
    info: step_info.StepInfo
    lists: commands.IndexLists

    def emit(self, emission: Emission) -> None:
        """Adds the commands of all descriptors: first constants, then one command a piece."""
        self._emit_constants(emission)
        self._emit_ranges(emission)
        self._emit_rows(emission)
        self._emit_scattered(emission)

    def _output(self, pieces: arrays.IntArray) -> arrays.IntArray:
        locations = self.pieces.locations
        return self.info.value_part[locations.step[pieces]] + locations.part[pieces]

    def _place(self, pieces: arrays.IntArray) -> NDArray[np.int64]:
        return self.pieces.locations.step[pieces].astype(np.int64) * PLACES_PER_STEP + pieces + 1

    def _emit_constants(self, emission: Emission) -> None:
        locations = self.pieces.locations
        step = locations.constant_step.astype(np.int64)
        if not len(step):
            return
        whole = self.info.value_part[step] + locations.constant_part
        runs = [
            (number, first, last - first)
            for number in range(len(step))
            for first, last in self._constant_runs(number)
        ]
        number, first, count = np.array(runs, np.int32).T
        output = self.info.submatrices.parts(whole[number], first, count)
        alpha = locations.constant[number]
        rows = command_rows(commands.SetConst, len(number), alpha, output=output)
        emission.add(step[number] * PLACES_PER_STEP, rows)

    def _constant_runs(self, number: int) -> list[tuple[int, int]]:
        """Returns the ranges of rows, of all sequences, that a constant is set in."""
        locations, minibatch = self.pieces.locations, self.pieces.minibatch
        first, count = locations.constant_rows[number].tolist()
        block = int(self.pieces.steps.block[locations.constant_step[number]])
        if minibatch.size == 1 or (first % block == 0 and count % block == 0):
            return [(first * minibatch.size, (first + count) * minibatch.size)]
        pattern = np.arange(first, first + count, dtype=np.int32)
        rows = np.sort(minibatch.rows(pattern, block, len(pattern)))
        ends = arrays.where(np.diff(rows) != 1)
        begins = np.concatenate([[0], ends + 1])
        ends = np.append(ends, len(rows) - 1)
        return list(zip(rows[begins].tolist(), (rows[ends] + 1).tolist(), strict=True))

    def _emit_ranges(self, emission: Emission) -> None:
        pieces, size = self.pieces, self.pieces.minibatch.size
        chosen = pieces.of_kind(PieceKind.RANGE)
        source = self.info.submatrices.parts(
            self.info.value[pieces.source_step[chosen]],
            pieces.source_first[chosen] * size,
            pieces.count[chosen] * size,
        )
        alpha = pieces.locations.alpha[chosen]
        output = self._output(chosen)
        rows = command_rows(commands.MatrixAdd, len(chosen), alpha, output=output, input=source)
        emission.add(self._place(chosen), rows)

    def _emit_rows(self, emission: Emission) -> None:
        pieces = self.pieces
        chosen = pieces.of_kind(PieceKind.ROWS)
        block = pieces.steps.block
        numbers = [
            self.lists.indexes.add(
                pieces.minibatch.rows(
                    pieces.rows(piece),
                    int(block[pieces.source_step[piece]]),
                    int(block[pieces.locations.step[piece]]),
                )
            )
            for piece in chosen.tolist()
        ]
        rows = command_rows(
            commands.AddRows,
            len(chosen),
            pieces.locations.alpha[chosen],
            output=self._output(chosen),
            input=self.info.value[pieces.source_step[chosen]],
            indexes=np.array(numbers, np.int32),
        )
        emission.add(self._place(chosen) + AFTER_RANGES, rows)

    def _emit_scattered(self, emission: Emission) -> None:
        pieces = self.pieces
        chosen = pieces.of_kind(PieceKind.SCATTERED)
        numbers = [
            self.lists.multi.add(
                ScatteredRows.of(pieces, piece, self.info.value).repeated(pieces.minibatch)
            )
            for piece in chosen.tolist()
        ]
        rows = command_rows(
            commands.AddRowsMulti,
            len(chosen),
            pieces.locations.alpha[chosen],
            output=self._output(chosen),
            indexes_multi=np.array(numbers, np.int32),
        )
        emission.add(self._place(chosen) + AFTER_RANGES, rows)


@attrs.frozen(kw_only=True, eq=False)
class ScatteredRows:
    """Rows of several steps, for the rows of one sequence.

    Attributes:
        pairs: (K, 2) int32: submatrix, row among those of one sequence; (-1, -1) for none.
        source_block: (K,) int32, the block of the source step of each row; see `shortcut`.
        block: The block of the step whose rows these are.
    """

    pairs: arrays.IntArray
    source_block: arrays.IntArray
    block: int

    @classmethod
    def of(cls, pieces: Pieces, piece: int, submatrix_of_step: arrays.IntArray) -> ScatteredRows:
        """Returns the rows of a piece.

        Args:
            pieces: The pieces.
            piece: The number of one.
            submatrix_of_step: (S,) int32, the submatrix of each step; rows of steps without one are
                left out.
        """
        steps = pieces.steps
        source = pieces.source_rows(piece)
        step = steps.step_of_row[source]
        submatrix = np.where(source >= 0, submatrix_of_step[step], 0)
        pairs = np.stack([submatrix, source - steps.begin[step]], axis=1)
        pairs[submatrix <= 0] = arrays.NONE
        return cls(
            pairs=pairs,
            source_block=steps.block[step],
            block=int(steps.block[pieces.locations.step[piece]]),
        )

    def repeated(self, minibatch: shortcut.Minibatch) -> arrays.IntArray:
        """Returns the pairs of all sequences: (K * sequences, 2) int32."""
        submatrix, row = self.pairs.T
        full = np.empty((len(row) * minibatch.size, 2), np.int32)
        full[:, 1] = minibatch.rows(row, self.source_block, self.block)
        submatrix = submatrix.reshape(-1, 1, self.block)
        full[:, 0] = np.repeat(submatrix, minibatch.size, axis=1).reshape(-1)
        return full


@attrs.frozen(kw_only=True, eq=False)
class ComponentCommands:
    """The steps of component nodes, in order, and the operands that they share.

    Attributes:
        step: (K,) int32, the steps that components compute.
        component: (K,) int32.
        properties: (K,) int32, values of `ComponentProperties`.
        precomputed: (K,) int32, their precomputed indexes; 0 for none.
        memo: (K,) int32, names of memos; 0 for none.
        stores_stats: (K,) bool, whether statistics are wanted and kept.
        info: The submatrices of values and derivatives.
        num_steps: Number of all steps.
    """

    step: arrays.IntArray
    component: arrays.IntArray
    properties: arrays.IntArray
    precomputed: arrays.IntArray
    memo: arrays.IntArray
    stores_stats: NDArray[np.bool_]
    info: step_info.StepInfo
    num_steps: int

    @classmethod
    def of(
        cls,
        network: Network,
        requests: Sequence[ComputationRequest],
        steps: Steps,
        info: step_info.StepInfo,
        precomputed: arrays.IntArray,
    ) -> ComponentCommands:
        """Returns the commands' operands.

        A memo is kept if the backward computation or StoreStats needs it.
        """
        is_computed = (network.kind[steps.node] == NodeKind.COMPONENT) & ~steps.is_given
        step = arrays.where(is_computed).astype(np.int32)
        node = steps.node[step]
        wants_stats = np.array([request.store_component_stats for request in requests])
        stores_stats = network.has(ComponentProperties.STORES_STATS)[node]
        stores_stats &= wants_stats[steps.segment[step]]
        keeps_memo = network.has(ComponentProperties.USES_MEMO)[node]
        keeps_memo &= (info.deriv[step] > 0) | stores_stats
        return cls(
            step=step,
            component=network.component[node],
            properties=network.properties[node],
            precomputed=precomputed[step],
            memo=np.where(keeps_memo, np.cumsum(keeps_memo), 0).astype(np.int32),
            stores_stats=stores_stats,
            info=info,
            num_steps=len(steps),
        )

    def emit_forward(self, emission: Emission) -> None:
        """Adds Propagate, and StoreStats where it is wanted."""
        value, step = self.info.value, self.step
        place = step.astype(np.int64) * PLACES_PER_STEP
        rows = command_rows(
            commands.Propagate,
            len(step),
            component=self.component,
            precomputed_indexes=self.precomputed,
            input=value[step - 1],
            output=value[step],
            memo=self.memo,
        )
        emission.add(place, rows)
        chosen = arrays.where(self.stores_stats)
        rows = command_rows(
            commands.StoreStats,
            len(chosen),
            component=self.component[chosen],
            output=value[step[chosen]],
            memo=self.memo[chosen],
        )
        emission.add(place[chosen] + 1, rows)

    def emit_backward(self, emission: Emission, *, updates_model: bool) -> None:
        """Adds the backward commands of steps that have a derivative."""
        info = self.info
        chosen = arrays.where(info.deriv[self.step] > 0)
        step, properties = self.step[chosen], self.properties[chosen]
        needs_input = properties & int(ComponentProperties.BACKPROP_NEEDS_INPUT) != 0
        needs_output = properties & int(ComponentProperties.BACKPROP_NEEDS_OUTPUT) != 0
        uses_memo = properties & int(ComponentProperties.USES_MEMO) != 0
        rows = command_rows(
            commands.Backprop if updates_model else commands.BackpropNoModelUpdate,
            len(chosen),
            component=self.component[chosen],
            precomputed_indexes=self.precomputed[chosen],
            input_value=np.where(needs_input, info.value[step - 1], 0),
            output_value=np.where(needs_output, info.value[step], 0),
            output_deriv=info.deriv[step],
            input_deriv=info.deriv[step - 1],
            memo=np.where(uses_memo, self.memo[chosen], 0),
        )
        emission.add((self.num_steps - step.astype(np.int64)) * PLACES_PER_STEP, rows)


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
    special = ~network.has(ComponentProperties.SIMPLE) & (network.kind == NodeKind.COMPONENT)
    rows = _AllRows(steps, minibatch)
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
            inputs, outputs = rows.of_step(step - 1), rows.of_step(step)
            precomputed = component.precompute_indexes(inputs, outputs, need_backprop)
        if precomputed is not None:
            numbers[step] = len(found)
            found.append(precomputed)
    return numbers, tuple(found)


class _AllRows:
    """The rows of steps, of all sequences."""

    def __init__(self, steps: Steps, minibatch: shortcut.Minibatch) -> None:
        self.steps = steps
        self.minibatch = minibatch
        self.of_node: dict[int, arrays.IntArray] = {}

    def of_step(self, step: int) -> arrays.IntArray:
        """Returns the indexes of all rows of a step, in order: (rows, 3) int32."""
        steps, size = self.steps, self.minibatch.size
        rows, block = steps.rows_of(step), int(steps.block[step])
        if block > 1:
            return self.minibatch.indexes(steps.indexes[rows], block)
        # For each row of the pattern all sequences, for all steps of a node at once.
        node = int(steps.node[step])
        own = steps.by_node[steps.node_begin[node] : steps.node_begin[node + 1]]
        first = int(steps.begin[own[0]])
        if node not in self.of_node:
            end = steps.rows_of(int(own[-1])).stop
            self.of_node[node] = self.minibatch.indexes(steps.indexes[first:end], 1)
        return self.of_node[node][(rows.start - first) * size : (rows.stop - first) * size]
