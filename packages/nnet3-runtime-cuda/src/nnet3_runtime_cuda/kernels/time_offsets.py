"""The rows of an input that lie at given offsets in time from the rows of an output."""

from __future__ import annotations

from nnet3_descriptors.components import PrecomputedIndexes, TimeOffsetPrecomputedIndexes

from nnet3_runtime_cuda.operations import Array


def rows_at_offsets(x: Array, indexes: PrecomputedIndexes | None, num_rows: int) -> list[Array]:
    """For each time offset the rows of x that the rows of the output need: views of x.

    Args:
        x: (rows in, columns), so ordered that such rows have a constant distance.
        indexes: The precomputed indexes of the component.
        num_rows: Number of rows of the output.
    """
    assert isinstance(indexes, TimeOffsetPrecomputedIndexes)
    stride = indexes.row_stride
    return [
        x[start : start + stride * (num_rows - 1) + 1 : stride] for start in indexes.row_offsets
    ]
