"""What patterns have in common that follow rows by what the debug info says they are of."""

from __future__ import annotations

from nnet3_compiler.computation import NnetComputation
from nnet3_compiler.debug_info import NO_DEBUG_INFO, MatrixDebugInfo

from nnet3_optimizer.equivalence.pattern import IrregularError, Rectangles


class DescribedPattern:
    """Rows of all sequences, by what the debug info says of them, in the place of a `Pattern`.

    Attributes:
        sequences: Any number but 1: the order of rows matters.
        matrix_rows: How many elements stand for the rows of each matrix.
        matrix_cols: The columns of each matrix.
        submatrices: The submatrices.
        blocks: A number for each, the same where rows of both are of the same.
        padding, parts: Empty: whatever rows a submatrix has are followed.
    """

    sequences = 0
    matrix_rows: list[int]
    submatrices: Rectangles
    blocks: list[int]

    def __init__(self, computation: NnetComputation) -> None:
        self._computation = computation
        self.matrix_cols: list[int] = computation.matrices[:, 1].tolist()
        self.padding: dict[int, tuple[int, int]] = {}
        self.parts: dict[int, tuple[int, int]] = {}

    def _infos(self) -> list[MatrixDebugInfo]:
        """Returns the debug info of each matrix."""
        infos = self._computation.matrix_debug_info
        return [*infos, *[NO_DEBUG_INFO] * (len(self._computation.matrices) - len(infos))]

    def _require_rows_of_matrices(self, rows: list[int]) -> None:
        """Raises an IrregularError unless each matrix has so many rows, as its debug info says."""
        if rows != self._computation.matrices[:, 0].tolist():
            raise IrregularError

    def blocks_of_single_rows(self) -> list[int]:
        """Returns 0 for each submatrix: none is known to be a single element for good."""
        return [0] * len(self.blocks)

    def require_regular(self, submatrix: int) -> None:
        """Does nothing: all submatrices are."""
