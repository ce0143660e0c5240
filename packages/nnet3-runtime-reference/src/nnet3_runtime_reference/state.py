"""The state of a run: its matrices, and what it does to parts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from nnet3_computation import ComputationError, NnetComputation
from nnet3_descriptors import Component, Nnet
from numpy.typing import NDArray

from nnet3_runtime_reference.draws import Array, Draws

Rows = NDArray[np.int32]


class Matrices:
    """The matrices of a computation, by number. Reads return copies; undefined elements are NaN.

    Attributes:
        dtype: The type of all elements.
    """

    def __init__(self, computation: NnetComputation, dtype: np.dtype[Any]) -> None:
        """Begins without any matrix."""
        self.dtype = dtype
        self._sizes: list[list[int]] = computation.matrices.tolist()
        self._submatrices: list[list[int]] = computation.submatrices.tolist()
        self._arrays: dict[int, Array] = {}
        self._compressed: set[int] = set()

    def allocate(self, submatrix: int, value: float) -> None:
        """Makes the whole matrix that a submatrix names, all its elements of one value."""
        matrix = self._submatrices[submatrix][0]
        self._arrays[matrix] = np.full(self._sizes[matrix], value, dtype=self.dtype)
        self._compressed.discard(matrix)

    def free(self, submatrix: int) -> None:
        """Forgets the whole matrix that a submatrix names."""
        matrix = self._submatrices[submatrix][0]
        self._array(matrix)
        del self._arrays[matrix]

    def move(self, source: int, destination: int) -> None:
        """Hands the memory of the matrix of one submatrix to the matrix of another.

        The other matrix had no memory, or was given to the user and is not read any more.
        """
        source, destination = self._submatrices[source][0], self._submatrices[destination][0]
        self._arrays[destination] = self._array(source)
        del self._arrays[source]

    def shape(self, submatrix: int) -> tuple[int, int]:
        """Returns the rows and columns of a submatrix."""
        _, _, rows, _, columns = self._submatrices[submatrix]
        return rows, columns

    def read(self, submatrix: int) -> Array:
        """Returns a copy of a submatrix."""
        return self._view(submatrix).copy()

    def write(self, submatrix: int, values: Array) -> None:
        """Sets the elements of a submatrix.

        Raises:
            ComputationError: the values have another shape.
        """
        self._check_shape(submatrix, values)
        self._view(submatrix)[...] = values

    def add(self, submatrix: int, values: Array) -> None:
        """Adds to the elements of a submatrix.

        Raises:
            ComputationError: the values have another shape.
        """
        self._check_shape(submatrix, values)
        self._view(submatrix)[...] += values

    def read_rows(self, places: Rows, columns: int) -> Array:
        """Returns rows of several submatrices, zeros where there is none.

        Args:
            places: (rows, 2): submatrix, row; (-1, -1) for none.
            columns: Of each submatrix.

        Returns:
            (rows, columns).
        """
        found = np.zeros((len(places), columns), dtype=self.dtype)
        for submatrix, chosen, rows in _by_submatrix(places):
            found[chosen] = self._view(submatrix)[rows]
        return found

    def write_rows(self, places: Rows, values: Array) -> None:
        """Sets rows of several submatrices; see `read_rows`.

        Raises:
            ComputationError: a row is named twice.
        """
        written: set[tuple[int, int, int]] = set()
        for submatrix, chosen, rows in _by_submatrix(places):
            matrix, first, _, column, _ = self._submatrices[submatrix]
            for row in rows.tolist():
                place = matrix, first + row, column
                if place in written:
                    raise ComputationError(f"row {first + row} of m{matrix} is written twice")
                written.add(place)
            self._view(submatrix)[rows] = values[chosen]

    def compress(self, submatrix: int, values: Array) -> None:
        """Replaces a whole matrix by its compressed values, out of reach until `decompress`."""
        self.write(submatrix, values)
        self._compressed.add(self._submatrices[submatrix][0])

    def decompress(self, submatrix: int) -> None:
        """Makes a matrix that was compressed accessible again."""
        matrix = self._submatrices[submatrix][0]
        if matrix not in self._compressed:
            raise ComputationError(f"m{matrix} is not compressed")
        self._compressed.remove(matrix)

    def _check_shape(self, submatrix: int, values: Array) -> None:
        if values.shape != self.shape(submatrix):
            raise ComputationError(
                f"values of shape {values.shape} do not fit a submatrix of {self.shape(submatrix)}"
            )

    def _array(self, matrix: int) -> Array:
        if matrix not in self._arrays:
            raise ComputationError(f"m{matrix} is not allocated")
        if matrix in self._compressed:
            raise ComputationError(f"m{matrix} is compressed")
        return self._arrays[matrix]

    def _view(self, submatrix: int) -> Array:
        matrix, row, rows, column, columns = self._submatrices[submatrix]
        return self._array(matrix)[row : row + rows, column : column + columns]


def _by_submatrix(places: Rows) -> Sequence[tuple[int, NDArray[np.intp], Rows]]:
    """Returns for each submatrix that is named: its number, its places, and the rows there."""
    numbers = places[:, 0]
    return [
        (submatrix, chosen := np.flatnonzero(numbers == submatrix), places[chosen, 1])
        for submatrix in np.unique(numbers).tolist()
        if submatrix >= 0
    ]


class State:
    """The state of a computation between two commands.

    Attributes:
        nnet: The network.
        computation: The computation.
        dtype: The precision of all arithmetic.
        draws: Source of masks and decisions.
        components: The components, with the statistics that were stored so far.
        statistics: For each component by number, the same statistics by the names of fields, not
            rounded to the single precision of its arrays.
        gradients: For each component by number, the plain gradient of each of its parameters.
        matrices: The matrices.
        memos: The memos that Propagate commands have made, by number.
        given: The matrices for AcceptInput commands, by node.
        provided: The matrices of ProvideOutput commands, by node.
    """

    def __init__(
        self, nnet: Nnet, computation: NnetComputation, dtype: np.dtype[Any], draws: Draws
    ) -> None:
        """Begins with nothing computed."""
        self.nnet = nnet
        self.computation = computation
        self.dtype = dtype
        self.draws = draws
        self.components: list[Component] = list(nnet.components)
        self.statistics: list[dict[str, Any]] = [{} for _ in nnet.components]
        self.forget_matrices()
        self.forget_gradients()
        self.exchange({})

    def forget_matrices(self) -> None:
        """Drops the matrices and memos of a run; statistics and gradients stay."""
        self.matrices = Matrices(self.computation, self.dtype)
        self.memos: dict[int, Any] = {}

    def forget_gradients(self) -> None:
        """Sets all gradients to zero."""
        self.gradients: list[dict[str, Array]] = [
            {
                name: np.zeros(array.shape, dtype=self.dtype)
                for name, array in component.parameter_arrays().items()
            }
            for component in self.nnet.components
        ]

    def exchange(self, given: Mapping[str, Array]) -> None:
        """Begins a segment, with its inputs and no outputs yet."""
        self.given = dict(given)
        self.provided: dict[str, Array] = {}
