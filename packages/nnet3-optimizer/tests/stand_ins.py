"""Runs computations with stand-ins for components: arbitrary functions with the same properties.

The equivalence of two computations must not depend on the functions of components, only on their
properties (simple or not, sets or adds, what the backward pass reads). So any functions with these
properties serve to compare computations, and no kernels are needed.
"""

from __future__ import annotations

import numpy as np
from nnet3_computation import NnetComputation, commands
from nnet3_computation.commands import Command
from nnet3_descriptors import Nnet
from nnet3_descriptors.components import ComponentProperties as Property

Results = dict[tuple, np.ndarray]
"""The results of a computation that a user can see."""


class Machine:
    """The matrices of a computation while it runs; unwritten memory holds NaN.

    Attributes:
        provided: The outputs, by segment and name of the node.
        updates: For each component, the sum of the contributions to its update.
        stats: For each component, the sum of the contributions to its statistics.
    """

    def __init__(self, nnet: Nnet, computation: NnetComputation, seed: int = 0) -> None:
        self.nnet, self.computation = nnet, computation
        self.seed = seed
        self.matrices: dict[int, np.ndarray] = {}
        self.provided: dict[tuple[int, str], np.ndarray] = {}
        self.updates: dict[int, np.ndarray] = {}
        self.stats: dict[int, np.ndarray] = {}
        self.memos: dict[int, np.ndarray] = {}
        self.segment = 0

    def run(self) -> Machine:
        """Runs all commands, with random inputs that depend only on node and segment."""
        for command in self.computation.commands:
            self._run(command)
        return self

    def results(self) -> Results:
        """All results that a user can see."""
        return {
            **{("provided", *key): value for key, value in self.provided.items()},
            **{("update", key): value for key, value in self.updates.items()},
            **{("stats", key): value for key, value in self.stats.items()},
        }

    # -- matrices ------------------------------------------------------------------------------

    def _matrix(self, submatrix: int) -> int:
        return int(self.computation.submatrices[submatrix, 0])

    def _same(self, one: int, other: int) -> bool:
        return bool(
            (self.computation.submatrices[[one]] == self.computation.submatrices[other]).all()
        )

    def _view(self, submatrix: int) -> np.ndarray:
        matrix, row, rows, col, cols = self.computation.submatrices[submatrix].tolist()
        return self.matrices[matrix][row : row + rows, col : col + cols]

    def _new(self, submatrix: int, value: float) -> np.ndarray:
        size = tuple(self.computation.matrices[self._matrix(submatrix)].tolist())
        self.matrices[self._matrix(submatrix)] = np.full(size, value)
        return self.matrices[self._matrix(submatrix)]

    def _named_rows(self, number: int) -> list[tuple[int, np.ndarray]]:
        pairs = self.computation.indexes_multi[number].tolist()
        return [(place, self._view(s)[row]) for place, (s, row) in enumerate(pairs) if s > 0]

    # -- commands ------------------------------------------------------------------------------

    def _run(self, command: Command) -> None:
        match command:
            case commands.AllocMatrixUndefined():
                self._new(command.matrix, np.nan)
            case commands.AllocMatrixZeroed():
                self._new(command.matrix, 0.0)
            case commands.DeallocMatrix():
                del self.matrices[self._matrix(command.matrix)]
            case commands.SwapMatrix():
                taken = self.matrices.pop(self._matrix(command.source))
                self.matrices[self._matrix(command.destination)] = taken
            case commands.AcceptInput():
                array = self._new(command.matrix, 0.0)
                key = [self.seed, self.segment, command.node]
                array[:] = np.random.default_rng(key).standard_normal(array.shape)
            case commands.ProvideOutput():
                name = self.nnet.nodes[command.node].name
                self.provided[self.segment, name] = self._view(command.matrix).copy()
            case commands.NoOperationMarker():
                self.segment += 1
            case commands.CompressMatrix():
                self._compress(command)
            case commands.Propagate():
                self._propagate(command)
            case commands.StoreStats():
                y = self._view(command.output)
                self._add(self.stats, command.component, np.abs(y).sum(axis=0))
            case commands.Backprop():
                self._backprop(command, updates=True)
            case commands.BackpropNoModelUpdate():
                self._backprop(command, updates=False)
            case _:
                self._move(command)

    def _move(self, command: Command) -> None:
        tables = self.computation
        match command:
            case commands.SetConst():
                self._view(command.output)[:] = command.alpha
            case commands.MatrixCopy():
                self._view(command.output)[:] = command.alpha * self._view(command.input)
            case commands.MatrixAdd():
                self._view(command.output)[:] += command.alpha * self._view(command.input)
            case commands.CopyRows():
                indexes = tables.indexes[command.indexes]
                rows = self._view(command.input)[indexes]
                rows[indexes < 0] = 0.0
                self._view(command.output)[:] = command.alpha * rows
            case commands.AddRows():
                indexes = tables.indexes[command.indexes]
                used = np.flatnonzero(indexes >= 0)
                rows = self._view(command.input)[indexes[used]]
                self._view(command.output)[used] += command.alpha * rows
            case commands.CopyRowsMulti():
                rows = [(at, row.copy()) for at, row in self._named_rows(command.indexes_multi)]
                self._view(command.output)[:] = 0.0
                for place, row in rows:
                    self._view(command.output)[place] = command.alpha * row
            case commands.AddRowsMulti():
                for place, row in self._named_rows(command.indexes_multi):
                    self._view(command.output)[place] += command.alpha * row
            case commands.CopyToRowsMulti():
                for place, row in self._named_rows(command.indexes_multi):
                    row[:] = command.alpha * self._view(command.input)[place]
            case commands.AddToRowsMulti():
                for place, row in self._named_rows(command.indexes_multi):
                    row[:] += command.alpha * self._view(command.input)[place]
            case commands.AddRowRanges():
                ranges = tables.indexes_ranges[command.indexes_ranges].tolist()
                for place, (begin, end) in enumerate(ranges):
                    rows = self._view(command.input)[max(begin, 0) : max(end, 0)]
                    self._view(command.output)[place] += command.alpha * rows.sum(axis=0)

    def _compress(self, command: commands.CompressMatrix) -> None:
        view = self._view(command.matrix)
        if command.alpha == 0.0:
            view[:] = view > 0
        else:
            levels = 2 ** {1: 7, 2: 8, 3: 15, 4: 16}[command.compression_type] - 1
            low = -command.alpha if command.compression_type in (1, 3) else 0.0
            clipped = np.clip(view, low, command.alpha)
            view[:] = np.round(clipped / command.alpha * levels) * command.alpha / levels

    # -- stand-ins for components --------------------------------------------------------------

    def _weights(self, component: int, rows: int, cols: int, what: int) -> np.ndarray:
        rng = np.random.default_rng([component, rows, cols, what])
        return rng.standard_normal((rows, cols)) / np.sqrt(rows)

    def _function(self, component: int, x: np.ndarray, cols: int, what: int) -> np.ndarray:
        """An arbitrary function of each row."""
        return np.tanh(x @ self._weights(component, x.shape[1], cols, what) + 0.1)

    def _by_rows(self, properties: Property) -> bool:
        return bool(properties & Property.SIMPLE) and not properties & Property.USES_MEMO

    def _mixed(self, component: int, x: np.ndarray, rows: int, what: int) -> np.ndarray:
        """An arbitrary function of all rows together, with `rows` rows."""
        return self._weights(component, len(x), rows, what).T @ x

    def _sums(self, x: np.ndarray, precomputed: int, ranges: str = "forward_indexes") -> np.ndarray:
        """The sums of rows of x over the ranges of precomputed indexes."""
        rows = self._rows(precomputed, ranges).reshape(-1, 2)
        return np.array([x[begin:end].sum(axis=0) for begin, end in rows])

    def _rows(self, precomputed: int, name: str) -> np.ndarray:
        """An attribute of precomputed indexes."""
        indexes = self.computation.precomputed_indexes[precomputed]
        if not hasattr(indexes, name):
            raise ValueError(f"{indexes} have no {name}")
        return getattr(indexes, name)

    def _propagate(self, command: commands.Propagate) -> None:
        component = self.nnet.components[command.component]
        output = self._view(command.output)
        x = self._view(command.input).copy() if command.input else np.zeros((1, 1))
        if component.type == "RectifiedLinearComponent":
            y = np.maximum(x, 0.0)
        elif component.type in ("NoOpComponent", "BackpropTruncationComponent"):
            y = getattr(component, "scale", 1.0) * x
        elif self._by_rows(component.properties):
            y = self._function(command.component, x, output.shape[1], 1)
        elif component.type == "StatisticsExtractionComponent":
            y = self._function(command.component, x, output.shape[1], 1)
            y = self._sums(y, command.precomputed_indexes)
        elif component.type == "StatisticsPoolingComponent":
            x = self._sums(x, command.precomputed_indexes)
            y = self._function(command.component, x, output.shape[1], 1)
        else:
            y = self._function(command.component, x, output.shape[1], 1)
            y = self._mixed(command.component, y, len(output), 2)
            self.memos[command.memo] = x.mean(axis=0)
        in_place = self._same(command.input, command.output)
        if component.properties & Property.PROPAGATE_ADDS and not in_place:
            y = output + y
        output[:] = y

    def _backprop(self, command: Command, *, updates: bool) -> None:
        number = command.component
        component, properties = (
            self.nnet.components[number],
            self.nnet.components[number].properties,
        )
        deriv = self._view(command.output_deriv).copy()
        precomputed = command.precomputed_indexes
        pools = component.type == "StatisticsPoolingComponent"
        extracts = component.type == "StatisticsExtractionComponent"
        if extracts:
            deriv = deriv[self._rows(precomputed, "backward_indexes")]
        parts = [deriv]
        if properties & Property.BACKPROP_NEEDS_INPUT and command.input_value:
            x = self._view(command.input_value).copy()
            parts.append(self._sums(x, precomputed) if pools else x)
        if properties & Property.BACKPROP_NEEDS_OUTPUT and command.output_value:
            y = self._view(command.output_value).copy()
            parts.append(y > 0 if component.type == "RectifiedLinearComponent" else y)
        by_rows = self._by_rows(properties) or pools or extracts
        if not by_rows:
            rows = max(map(len, parts))
            parts = [self._mixed(number, part, rows, 3) for part in parts]
            if command.memo:
                memo = self.memos[command.memo]
                parts.append(np.broadcast_to(memo, (rows, len(memo))))
        about = np.hstack(parts)
        if command.input_deriv:
            target = self._view(command.input_deriv)
            result = self._function(number, about, target.shape[1], 4)
            if pools:
                result = self._sums(result, precomputed, "backward_indexes")
            if not by_rows:
                result = self._mixed(number, result, len(target), 5)
            in_place = self._same(command.input_deriv, command.output_deriv)
            if properties & Property.BACKPROP_ADDS and not in_place:
                result = target + result
            target[:] = result
        if updates and properties & Property.UPDATABLE:
            self._add(self.updates, number, self._function(number, about, 3, 6).sum(axis=0))

    @staticmethod
    def _add(totals: dict[int, np.ndarray], key: int, value: np.ndarray) -> None:
        totals[key] = totals.get(key, 0.0) + value


def results(nnet: Nnet, computation: NnetComputation) -> Results | None:
    """The results of a computation on random inputs; None if it cannot be run."""
    with np.errstate(all="ignore"):
        try:
            return Machine(nnet, computation).run().results()
        except (IndexError, KeyError, ValueError):
            return None


def agree(one: Results, other: Results) -> bool:
    """Whether results are the same, to double precision."""
    return one.keys() == other.keys() and all(
        value.shape == other[key].shape
        and bool(np.allclose(value, other[key], rtol=1e-9, atol=1e-9))
        for key, value in one.items()
    )


def same_results(nnet: Nnet, one: NnetComputation, other: NnetComputation) -> bool:
    """Whether two computations give the same results on random inputs."""
    return agree(Machine(nnet, one).run().results(), Machine(nnet, other).run().results())
