"""Sums of ranges of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3_runtime_onnx.graph import Tensor, concat
from nnet3_runtime_onnx.matrices.matrices import Matrices
from nnet3_runtime_onnx.matrices.regions import Region

FEW = 4
"""Up to so many ranges are summed one by one."""


def sums_of_ranges(matrices: Matrices, region: Region, ranges: NDArray[np.integer]) -> Region:
    """Returns in row i the sum of the rows of a region from begin_i to before end_i.

    Args:
        matrices: Make tensors of regions.
        region: The rows.
        ranges: (rows, 2): begin_i, end_i; an empty range gives zeros.
    """
    lengths = ranges[:, 1] - ranges[:, 0]
    if lengths.max(initial=0) <= 1:
        return region.take(np.where(lengths == 1, ranges[:, 0], -1))
    distinct, number = np.unique(ranges[lengths > 0], axis=0, return_inverse=True)
    of_row = np.full(len(ranges), -1)
    of_row[lengths > 0] = number.reshape(-1)
    strips = (Region((strip,)) for strip in region.merged().strips)
    sums = [matrices.region_of(_sums(matrices, strip, distinct)) for strip in strips]
    return Region.side_by_side(sums).take(of_row)


def _sums(matrices: Matrices, region: Region, ranges: NDArray[np.integer]) -> Tensor:
    """Returns the sums of ranges, ascending and none of them empty, in the cheapest way."""
    begins, ends = ranges.T
    low, high = int(begins[0]), int(ends.max())
    if len(ranges) <= FEW:
        parts = [region.take(np.arange(begin, end)) for begin, end in ranges.tolist()]
        terms = [matrices.tensor(part).reduce("ReduceSum", -2, keep=True) for part in parts]
        return concat(terms, axis=-2)
    rows = matrices.tensor(region.take(np.arange(low, high)))
    length = int(ends[0] - begins[0])
    if (begins == low + length * np.arange(len(ranges))).all() and (ends == begins + length).all():
        blocks = rows.reshape(len(ranges), length, region.columns)
        return blocks.reduce("ReduceSum", -2)
    numbers = np.arange(low, high)
    is_member = (begins[:, None] <= numbers) & (numbers < ends[:, None])
    graph = rows.graph
    name = graph.free_name("ranges")
    members = graph.constant_of(name, is_member.astype(np.float32))
    return Tensor(graph, members, is_member.shape, is_led=False) @ rows
