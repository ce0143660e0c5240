"""Commands that run components, and the indexes that components precompute."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from nnet3_computation import ComputationRequest
from nnet3_computation.arrays import IntArray, where
from nnet3_computation.commands import (
    Backprop,
    BackpropNoModelUpdate,
    Emission,
    Propagate,
    StoreStats,
    command_rows,
)
from nnet3_descriptors.components import ComponentProperties, PrecomputedIndexes
from numpy.typing import NDArray

from nnet3_compiler.assembly.forward import PLACES_PER_STEP
from nnet3_compiler.assembly.step_info import StepInfo
from nnet3_compiler.shortcut import Minibatch
from nnet3_compiler.steps.network import Network, NodeKind
from nnet3_compiler.steps.steps import Steps


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

    step: IntArray
    component: IntArray
    properties: IntArray
    precomputed: IntArray
    memo: IntArray
    stores_stats: NDArray[np.bool_]
    info: StepInfo
    num_steps: int

    @classmethod
    def of(
        cls,
        network: Network,
        requests: Sequence[ComputationRequest],
        steps: Steps,
        info: StepInfo,
        precomputed: IntArray,
    ) -> ComponentCommands:
        """Returns the commands' operands.

        A memo is kept if the backward computation or StoreStats needs it.
        """
        is_computed = (network.kind[steps.node] == NodeKind.COMPONENT) & ~steps.is_given
        step = where(is_computed).astype(np.int32)
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
            Propagate,
            len(step),
            component=self.component,
            precomputed_indexes=self.precomputed,
            input=value[step - 1],
            output=value[step],
            memo=self.memo,
        )
        emission.add(place, rows)
        chosen = where(self.stores_stats)
        rows = command_rows(
            StoreStats,
            len(chosen),
            component=self.component[chosen],
            output=value[step[chosen]],
            memo=self.memo[chosen],
        )
        emission.add(place[chosen] + 1, rows)

    def emit_backward(self, emission: Emission, *, updates_model: bool) -> None:
        """Adds the backward commands of steps that have a derivative."""
        info = self.info
        chosen = where(info.deriv[self.step] > 0)
        step, properties = self.step[chosen], self.properties[chosen]
        needs_input = properties & int(ComponentProperties.BACKPROP_NEEDS_INPUT) != 0
        needs_output = properties & int(ComponentProperties.BACKPROP_NEEDS_OUTPUT) != 0
        uses_memo = properties & int(ComponentProperties.USES_MEMO) != 0
        rows = command_rows(
            Backprop if updates_model else BackpropNoModelUpdate,
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
    minibatch: Minibatch,
) -> tuple[IntArray, tuple[PrecomputedIndexes | None, ...]]:
    """Lets components precompute indexes for the rows of their steps.

    Returns:
        (S,) int32, the number of each step's precomputed indexes, 0 for none; and these.
    """
    numbers = np.zeros(len(steps), np.int32)
    found: list[PrecomputedIndexes | None] = [None]
    special = ~network.has(ComponentProperties.SIMPLE) & (network.kind == NodeKind.COMPONENT)
    rows = _AllRows(steps, minibatch)
    for step in where(special[steps.node] & ~steps.is_given).tolist():
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

    def __init__(self, steps: Steps, minibatch: Minibatch) -> None:
        self.steps = steps
        self.minibatch = minibatch
        self.of_node: dict[int, IntArray] = {}

    def of_step(self, step: int) -> IntArray:
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
