"""All of a computation: allocation, inputs, outputs, forward and backward commands, debug info."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from nnet3_computation import ComputationRequest, RequestFingerprint
from nnet3_computation.arrays import IntArray, where
from nnet3_computation.commands import (
    AcceptInput,
    AllocMatrixZeroed,
    Command,
    DeallocMatrix,
    Emission,
    IndexLists,
    NoOperationMarker,
    ProvideOutput,
    Table,
    command_rows,
)
from nnet3_computation.computation import (
    NO_DEBUG_INFO,
    DebugInfoOfRows,
    MatrixDebugInfo,
    NnetComputation,
)
from nnet3_descriptors.components import PrecomputedIndexes
from nnet3_descriptors.structure import NetworkFingerprint
from numpy.typing import NDArray

from nnet3_compiler.assembly.backward import DescriptorBackward
from nnet3_compiler.assembly.component_commands import ComponentCommands
from nnet3_compiler.assembly.forward import PLACES_PER_STEP, DescriptorForward
from nnet3_compiler.assembly.gathered import GatheredMatrices
from nnet3_compiler.assembly.pieces import Pieces
from nnet3_compiler.assembly.step_info import StepInfo
from nnet3_compiler.shortcut import Minibatch
from nnet3_compiler.steps.network import Network, NodeKind
from nnet3_compiler.steps.steps import Steps


@attrs.frozen(kw_only=True, eq=False)
class Assembly:
    """Puts the commands of all steps together.

    The order is: inputs, allocation of all other matrices, forward commands, outputs, a marker;
    output derivatives, backward commands, deallocation, input derivatives. Of several segments
    each has its own inputs, forward commands, outputs and marker.

    Attributes:
        network: The network.
        requests: The request of each segment.
        steps: The steps.
        minibatch: The sequences that the rows stand for.
        pieces: The classified input locations.
        info: The submatrices of values and derivatives.
        precomputed_of_step: (S,) int32.
        precomputed_indexes: The indexes that components precomputed.
    """

    network: Network
    requests: Sequence[ComputationRequest]
    steps: Steps
    minibatch: Minibatch
    pieces: Pieces
    info: StepInfo
    precomputed_of_step: IntArray
    precomputed_indexes: tuple[PrecomputedIndexes | None, ...]

    def computation(
        self, *, debug_info: bool, made_for: tuple[RequestFingerprint, ...]
    ) -> NnetComputation:
        """Returns the computation, with or without debug info, and its fingerprints."""
        lists = IndexLists()
        components = ComponentCommands.of(
            self.network, self.requests, self.steps, self.info, self.precomputed_of_step
        )
        updates_model = any(request.need_model_derivative for request in self.requests)
        forward, backward = Emission(), Emission()
        DescriptorForward(pieces=self.pieces, info=self.info, lists=lists).emit(forward)
        components.emit_forward(forward)
        gathered = GatheredMatrices(first=len(self.info.matrices))
        DescriptorBackward(pieces=self.pieces, info=self.info, lists=lists, gathered=gathered).emit(
            backward
        )
        components.emit_backward(backward, updates_model=updates_model)
        rows = self.steps.count * self.minibatch.size
        step_rows = np.column_stack([self.steps.node, rows])[rows > 0]
        return NnetComputation(
            matrices=np.concatenate([self.info.matrices, gathered.table]),
            submatrices=self.info.submatrices.table,
            command_table=self._command_table(forward, backward, gathered),
            indexes=lists.indexes.items,
            indexes_multi=lists.multi.items,
            indexes_ranges=lists.ranges.items,
            precomputed_indexes=self.precomputed_indexes,
            need_model_derivative=updates_model,
            matrix_debug_info=self._debug_info(gathered) if debug_info else (),
            steps=step_rows,
            network=NetworkFingerprint.of(self.network.nnet),
            requests=made_for,
        )

    def _command_table(
        self, forward: Emission, backward: Emission, gathered: GatheredMatrices
    ) -> Table:
        steps, info = self.steps, self.info
        is_output = self.network.kind[steps.node] == NodeKind.OUTPUT
        marker = command_rows(NoOperationMarker, 1)
        table, places = forward.ordered()
        segment_of_command = steps.segment[places // PLACES_PER_STEP]
        parts: list[Table] = []
        for segment in range(len(self.requests)):
            own = steps.segment == segment
            parts.append(self._io(AcceptInput, info.value, own & steps.is_given))
            if segment == 0:
                parts.append(self._allocations(is_output))
                parts.append(gathered.commands(AllocMatrixZeroed))
            parts.append(table[segment_of_command == segment])
            parts.append(self._io(ProvideOutput, info.value, own & is_output))
            parts.append(marker)
        parts.append(self._io(AcceptInput, info.deriv, is_output)[::-1])
        parts.append(backward.ordered()[0])
        kept = self._matrices(info.value[is_output], info.deriv[steps.is_given])
        parts.append(self._whole(DeallocMatrix, ~kept))
        parts.append(gathered.commands(DeallocMatrix))
        parts.append(self._io(ProvideOutput, info.deriv, steps.is_given))
        return np.concatenate(parts)

    def _io(
        self, command_type: type[Command], submatrix: IntArray, chosen: NDArray[np.bool_]
    ) -> Table:
        """Returns the commands that take or give the matrices of some steps."""
        step = where(chosen & (submatrix > 0))
        return command_rows(
            command_type, len(step), matrix=submatrix[step], node=self.steps.node[step]
        )

    def _allocations(self, is_output: NDArray[np.bool_]) -> Table:
        """Returns the commands that allocate all matrices except the ones that the user gives."""
        given = self._matrices(self.info.value[self.steps.is_given], self.info.deriv[is_output])
        return self._whole(AllocMatrixZeroed, ~given)

    def _matrices(self, *submatrices: IntArray) -> NDArray[np.bool_]:
        """Returns which matrices these (whole) submatrices are: (M,) bool, True for the empty."""
        chosen = np.zeros(len(self.info.matrices), np.bool_)
        for numbers in submatrices:
            chosen[numbers] = True
        chosen[0] = True
        return chosen

    def _whole(self, command_type: type[Command], chosen: NDArray[np.bool_]) -> Table:
        matrix = where(chosen)
        return command_rows(command_type, len(matrix), matrix=matrix)

    def _debug_info(self, gathered: GatheredMatrices) -> Sequence[MatrixDebugInfo]:
        """Returns the cindexes of the rows of each matrix."""
        steps, minibatch = self.steps, self.minibatch
        sequences = minibatch.sequences if minibatch.size > 1 else NO_DEBUG_INFO.sequences
        step = self.info.matrix_step[1:]
        infos = DebugInfoOfRows(
            cindexes=steps.cindexes,
            begin=steps.begin[step],
            rows=steps.count[step],
            block=steps.block[step],
            is_deriv=self.info.matrix_is_deriv[1:],
            sequences=sequences,
        )
        further = gathered.debug_info(self.pieces)
        return (*infos, *further) if further else infos
