"""Runs computations by the definition of their commands, in double precision and with checks.

It knows only linear components, so every computation is an affine function of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from nnet3_computation import NnetComputation, commands
from nnet3_computation.commands.declaration import Command
from nnet3_descriptors import Component, Nnet
from nnet3_descriptors.components import (
    BackpropTruncationComponent,
    LinearComponent,
    NoOpComponent,
    StatisticsExtractionComponent,
    StatisticsPoolingComponent,
    TdnnComponent,
)

Arrays = Mapping[str, np.ndarray]


class Machine:
    """The matrices of a computation while it runs.

    Attributes:
        provided: The outputs of the computation, by node: values before the last marker, and
            derivatives after it.
        gradients: The derivative of each component's parameters, by component.
    """

    def __init__(self, nnet: Nnet, computation: NnetComputation) -> None:
        self.nnet, self.computation = nnet, computation
        self.matrices: dict[int, np.ndarray] = {}
        self.provided: dict[str, np.ndarray] = {}
        self.derivatives: dict[str, np.ndarray] = {}
        self.gradients: dict[str, np.ndarray] = {}
        self._position = 0

    def run(self, inputs: Arrays, output_derivs: Arrays | None = None) -> None:
        """Runs all commands; the backward ones only if there are output derivatives."""
        end = self.computation.forward_end
        for position, command in enumerate(self.computation.commands):
            given = inputs if position < end else output_derivs
            if given is None:
                return
            self._run(command, given, self.provided if position < end else self.derivatives)

    def run_segment(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """Runs the next segment of a looped computation, and the jump to the one after it."""
        taken: dict[str, np.ndarray] = {}
        program = self.computation.commands
        while not isinstance(command := program[self._position], commands.NoOperationMarker):
            self._run(command, inputs, taken)
            if isinstance(command, commands.ProvideOutput):
                del self.matrices[self._matrix(command.matrix)]
            self._position += 1
        self._position += 1
        while isinstance(command := program[self._position], commands.SwapMatrix):
            self._run(command, {}, {})
            self._position += 1
        if isinstance(command, commands.GotoLabel):
            self._position = command.label
        return taken

    def _view(self, submatrix: int) -> np.ndarray:
        matrix, row, rows, col, cols = self.computation.submatrices[submatrix].tolist()
        return self.matrices[matrix][row : row + rows, col : col + cols]

    def _matrix(self, submatrix: int) -> int:
        return int(self.computation.submatrices[submatrix, 0])

    def _size(self, submatrix: int) -> tuple[int, int]:
        return tuple(self.computation.matrices[self._matrix(submatrix)].tolist())

    def _multi_rows(self, number: int) -> list[tuple[int, np.ndarray]]:
        pairs = self.computation.indexes_multi[number].tolist()
        return [(place, self._view(s)[row]) for place, (s, row) in enumerate(pairs) if s >= 0]

    def _run(self, command: Command, given: Arrays, taken: dict[str, np.ndarray]) -> None:
        match command:
            case commands.AllocMatrixZeroed(matrix=matrix):
                assert self._matrix(matrix) not in self.matrices
                self.matrices[self._matrix(matrix)] = np.zeros(self._size(matrix))
            case commands.DeallocMatrix(matrix=matrix):
                del self.matrices[self._matrix(matrix)]
            case commands.SwapMatrix(destination=destination, source=source):
                assert self._matrix(destination) not in self.matrices
                self.matrices[self._matrix(destination)] = self.matrices.pop(self._matrix(source))
            case commands.AcceptInput(matrix=matrix, node=node):
                array = given[self.nnet.nodes[node].name]
                assert array.shape == self._size(matrix)
                assert self._matrix(matrix) not in self.matrices
                self.matrices[self._matrix(matrix)] = array.astype(np.float64)
            case commands.ProvideOutput(matrix=matrix, node=node):
                taken[self.nnet.nodes[node].name] = self._view(matrix).copy()
            case commands.SetConst(output=output, alpha=alpha):
                self._view(output)[:] = alpha
            case commands.MatrixAdd(output=output, input=source, alpha=alpha):
                self._view(output)[:] += alpha * self._view(source)
            case commands.AddRows(output=output, input=source, indexes=number, alpha=alpha):
                indexes = self.computation.indexes[number]
                assert len(indexes) == len(self._view(output))
                rows = np.flatnonzero(indexes >= 0)
                self._view(output)[rows] += alpha * self._view(source)[indexes[rows]]
            case commands.AddRowsMulti(output=output, indexes_multi=number, alpha=alpha):
                assert len(self.computation.indexes_multi[number]) == len(self._view(output))
                for place, row in self._multi_rows(number):
                    self._view(output)[place] += alpha * row
            case commands.AddToRowsMulti(input=source, indexes_multi=number, alpha=alpha):
                pairs = self.computation.indexes_multi[number]
                named = pairs[pairs[:, 0] >= 0]
                assert len(np.unique(named, axis=0)) == len(named)
                for place, row in self._multi_rows(number):
                    row += alpha * self._view(source)[place]
            case commands.CopyRows(output=output, input=source, alpha=alpha):
                rows = self.computation.indexes[command.indexes]
                copied = alpha * self._view(source)[rows]
                self._view(output)[:] = np.where((rows >= 0)[:, None], copied, 0)
            case commands.AddRowRanges(output=output, input=source, alpha=alpha):
                ranges = self.computation.indexes_ranges[command.indexes_ranges]
                assert len(ranges) == len(self._view(output))
                for place, (begin, end) in enumerate(ranges.tolist()):
                    if begin >= 0:
                        self._view(output)[place] += alpha * self._view(source)[begin:end].sum(0)
            case commands.Propagate():
                self._propagate(command)
            case commands.Backprop() | commands.BackpropNoModelUpdate():
                self._backprop(command)
            case commands.NoOperationMarker() | commands.NoOperationLabel():
                pass
            case commands.StoreStats():
                self._view(command.output)
            case _:
                raise NotImplementedError(command)

    def _propagate(self, command: commands.Propagate) -> None:
        component = self.nnet.components[command.component]
        output = self._view(command.output)
        if isinstance(component, StatisticsExtractionComponent | StatisticsPoolingComponent):
            for row, (begin, end) in enumerate(self._ranges(command)):
                output[row] = pooled(component, self._view(command.input)[begin:end])
            return
        for row, source, weight in self._terms(command, len(output)):
            output[row] += self._view(command.input)[source] @ weight.T
        assert component.output_dim == output.shape[1]

    def _backprop(self, command: commands.Backprop | commands.BackpropNoModelUpdate) -> None:
        name = self.nnet.component_names[command.component]
        component = self.nnet.components[command.component]
        if isinstance(component, StatisticsExtractionComponent | StatisticsPoolingComponent):
            # Counts do not depend on inputs, so their derivatives are ignored.
            for row, (begin, end) in enumerate(self._ranges(command)):
                deriv = self._view(command.output_deriv)[row]
                if isinstance(component, StatisticsExtractionComponent):
                    self._view(command.input_deriv)[begin:end] += deriv[1:]
                else:
                    count = self._view(command.input_value)[begin:end, 0].sum()
                    self._view(command.input_deriv)[begin:end, 1:] += deriv / count
            return
        deriv = self._view(command.output_deriv)
        parts = []
        for rows, sources, weight in self._terms(command, len(deriv)):
            if command.input_deriv:
                np.add.at(self._view(command.input_deriv), sources, deriv[rows] @ weight)
            if command.input_value:
                parts.append(deriv[rows].T @ self._view(command.input_value)[sources])
        if parts and isinstance(command, commands.Backprop):
            gradient = np.hstack(parts)
            self.gradients[name] = self.gradients.get(name, 0) + gradient

    def _ranges(self, command: Command) -> list[list[int]]:
        """The ranges of input rows that a component combines."""
        indexes = self.computation.precomputed_indexes[command.precomputed_indexes]
        return indexes.forward_indexes.tolist()

    def _terms(
        self, command: Command, rows: int
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Pairs of output and input rows, with the matrices that connect them."""
        component = self.nnet.components[command.component]
        places = np.arange(rows)
        if isinstance(component, TdnnComponent):
            indexes = self.computation.precomputed_indexes[command.precomputed_indexes]
            return [
                (places, offset + places * indexes.row_stride, weight)
                for offset, weight in zip(indexes.row_offsets, time_weights(component), strict=True)
            ]
        return [(places, places, linear_weight(component))]


def pooled(component: Component, rows: np.ndarray) -> np.ndarray:
    """The statistics of some rows: count and sums of frames, or the mean of such statistics."""
    if isinstance(component, StatisticsExtractionComponent):
        return np.concatenate([[len(rows)], rows.sum(axis=0)])
    return rows[:, 1:].sum(axis=0) / rows[:, 0].sum()


def time_weights(component: TdnnComponent) -> list[np.ndarray]:
    """The matrix of each time offset."""
    return np.hsplit(component.linear_params.astype(np.float64), len(component.time_offsets))


def linear_weight(component: Component) -> np.ndarray:
    """The matrix of a component that works row by row."""
    match component:
        case LinearComponent():
            return component.params.astype(np.float64)
        case NoOpComponent() | BackpropTruncationComponent():
            return np.eye(component.dim)
        case _:
            raise NotImplementedError(component.type)
