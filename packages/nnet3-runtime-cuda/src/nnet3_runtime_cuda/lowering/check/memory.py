"""The matrices that have memory, and the other uses of that memory in the planned execution."""

from __future__ import annotations

import attrs
import numpy as np

from nnet3_runtime_cuda.errors import PlanError
from nnet3_runtime_cuda.lowering.check.cells import PLANNED, Cells, Numbers


@attrs.frozen(eq=False)
class _Packed:
    """Rows in the memory of a matrix that is theirs as long as it holds the numbers of a factor.

    Attributes:
        factor: Of the numbers that the matrix holds since they were written.
        values: (rows, stretches).
    """

    factor: np.uint64
    values: Numbers


class Memory:
    """The memory of all matrices.

    A matrix that has lost its memory keeps its numbers until another matrix needs memory, which may
    be the same.
    """

    def __init__(self, cells: Cells, matrices: int) -> None:
        """Begins with no matrix.

        Args:
            cells: The numbers that the matrices hold.
            matrices: Number of matrices.
        """
        self._cells = cells
        self._is_there = [False] * matrices
        self._freed: set[int] = set()
        self._packed: dict[int, _Packed] = {}

    def is_there(self, matrix: int) -> bool:
        """Whether a matrix has memory."""
        return self._is_there[matrix]

    def appears(self, matrix: int) -> None:
        """Gives a matrix memory."""
        self._use_freed()
        self._is_there[matrix] = True

    def goes(self, matrix: int) -> None:
        """Takes the memory of a matrix away."""
        self._is_there[matrix] = False
        self._freed.add(matrix)

    def is_compressed(self, matrix: int) -> None:
        """A matrix has other memory instead of its own, until it appears again."""
        self._use_freed()
        self._is_there[matrix] = False

    def _use_freed(self) -> None:
        """Notes that memory is taken: it may be the memory of any freed matrix."""
        for freed in self._freed:
            self.spoil(freed)
        self._freed.clear()

    def spoil(self, matrix: int) -> np.uint64:
        """Notes that the planned execution uses the memory of a matrix for other things.

        Returns:
            The factor of the numbers that it holds then.
        """
        factor = self._cells.factor()
        self._cells.of_matrix(matrix)[PLANNED] = self._cells.matrix_results(matrix, factor)
        return factor

    def pack(self, matrix: int, values: Numbers) -> None:
        """Puts rows, (rows, stretches), into the memory of a matrix in the planned execution."""
        self._packed[matrix] = _Packed(self.spoil(matrix), values)

    def packed(self, position: int, matrix: int, user: int) -> Numbers:
        """The rows packed in the memory of a matrix: (rows, stretches).

        Args:
            position: Of the command that reads them.
            matrix: Number of the matrix.
            user: Position of the command whose input or derivative they are.

        Raises:
            PlanError: The memory holds something else.
        """
        packed = self._packed.get(matrix)
        if packed is not None:
            held = self._cells.matrix_results(matrix, packed.factor)
            if np.array_equal(held, self._cells.of_matrix(matrix)[PLANNED]):
                return packed.values
        raise PlanError(
            f"c{position}: the rows that c{user} needs in the memory of m{matrix} are not there"
        )

    def check(self, position: int, matrix: int) -> None:
        """Checks that a matrix has memory that the plan may write to.

        Raises:
            PlanError: It has none at the command at this position.
        """
        if not self._is_there[matrix]:
            raise PlanError(f"c{position}: the plan writes to m{matrix}, which has no memory then")
