"""Limits on the times of derivatives, by their definition.

A derivative at a time outside of the range is zero: whatever a command writes there. Every row of a
matrix has its time in the debug info of the compiled computation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest import mock

import numpy as np
from judged_cases import Case
from nnet3_computation import NnetComputation
from nnet3_computation.computation import T
from nnet3_runtime_reference import state
from nnet3_runtime_reference.state import Matrices

Range = tuple[float, float]


@contextmanager
def limited_times(case: Case) -> Iterator[None]:
    """Runs of the definition have only derivatives inside of the limits of a case."""
    limited = partial(_LimitedMatrices, limits=limits_of(case))
    with mock.patch.object(state, "Matrices", limited):
        yield


def limits_of(case: Case) -> Range:
    """The first and the last time of derivatives."""
    options = case.options
    low = -np.inf if options.min_deriv_time is None else options.min_deriv_time
    high = np.inf if options.max_deriv_time is None else options.max_deriv_time
    if options.max_deriv_time_relative is not None:
        last = max(int(io.indexes[:, 1].max()) for io in case.request.outputs)
        high = last + options.max_deriv_time_relative
    return low, high


class _LimitedMatrices(Matrices):
    """Matrices whose derivatives outside of a range of times stay zero."""

    def __init__(
        self, computation: NnetComputation, dtype: np.dtype[np.floating], limits: Range
    ) -> None:
        super().__init__(computation, dtype)
        low, high = limits
        self._outside = {
            matrix: (info.cindexes[:, T] < low) | (info.cindexes[:, T] > high)
            for matrix, info in enumerate(computation.matrix_debug_info)
            if info.is_deriv
        }

    def write(self, submatrix: int, values: np.ndarray) -> None:
        super().write(submatrix, self._limited(submatrix, values))

    def add(self, submatrix: int, values: np.ndarray) -> None:
        super().add(submatrix, self._limited(submatrix, values))

    def write_rows(self, places: np.ndarray, values: np.ndarray) -> None:
        super().write_rows(places, values)
        for submatrix in np.unique(places[places[:, 0] >= 0, 0]).tolist():
            self.write(submatrix, self.read(submatrix))

    def _limited(self, submatrix: int, values: np.ndarray) -> np.ndarray:
        matrix, row, rows, _, _ = self._submatrices[submatrix]
        if matrix not in self._outside:
            return values
        return np.where(self._outside[matrix][row : row + rows, None], 0.0, values)
