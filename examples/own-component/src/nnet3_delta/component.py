"""The component type: its fields, and the rows of its input that it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
from nnet3_descriptors.components import Component, PrecomputedIndexes
from nnet3_descriptors.components.declaration import component, integer, real
from nnet3_descriptors.components.index_rules import (
    AtOffsets,
    ClosedForm,
    RowArray,
    find_rows,
    no_such_row,
    precomputed,
    row_array,
    wrong_count,
)
from nnet3_descriptors.indexes import IndexArray, T, as_rows
from numpy.typing import NDArray


@precomputed
class DeltaPrecomputedIndexes(PrecomputedIndexes):
    """The rows of the input for each row of the output.

    Attributes:
        later: (rows out,), the input row of x(t + offset).
        earlier: (rows out,), the input row of x(t - offset).
    """

    later: RowArray = row_array()
    earlier: RowArray = row_array()

    def misfit(self, component: Any, rows_in: int, rows_out: int, *, backward: bool) -> str | None:
        """Returns what does not fit: a number of rows, or a missing row; None if all fits."""
        for rows in (self.later, self.earlier):
            misfit = wrong_count("output rows", len(rows), rows_out)
            misfit = misfit or no_such_row("input row", rows, rows_in)
            if misfit is not None:
                return misfit
        return None


@component
class DeltaComponent(Component):
    """y(t) = scale (x(t + offset) - x(t - offset)).

    Attributes:
        dim: Number of columns.
        offset: Distance in frames.
        scale: Factor of the difference.
    """

    INDEXES = DeltaPrecomputedIndexes

    dim: int = integer(minimum=1)
    offset: int = integer(default=1, minimum=1)
    scale: float = real(default=0.5)

    def _moved(self, output_indexes: IndexArray, frames: int) -> IndexArray:
        moved = output_indexes.astype(np.int64)
        moved[:, T] += frames
        return as_rows(moved, f"{self.type} with offset {self.offset}")

    def input_dependencies(
        self, output_indexes: IndexArray
    ) -> tuple[NDArray[np.int64], IndexArray]:
        """Returns the earlier and the later row of each row of the output; both are required.

        Raises:
            NetworkError: One of them would be at a t beyond 32 bits.
        """
        both = (self._moved(output_indexes, frames) for frames in (-self.offset, self.offset))
        rows = np.stack(list(both), axis=1).reshape(-1, 3)
        return np.arange(len(output_indexes) + 1, dtype=np.int64) * 2, rows

    def closed_form(self) -> ClosedForm:
        """Returns the same rule for all rows at once, which makes requests of many frames fast."""
        return (AtOffsets((-self.offset, self.offset)),)

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> DeltaPrecomputedIndexes:
        """Returns the places of these rows."""
        return DeltaPrecomputedIndexes(
            later=find_rows(input_indexes, self._moved(output_indexes, self.offset)),
            earlier=find_rows(input_indexes, self._moved(output_indexes, -self.offset)),
        )
