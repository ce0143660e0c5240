"""Tests of cutting tiled products into parts and blocks."""

from __future__ import annotations

import numpy as np
import pytest
from nnet3_runtime_cuda.kernels.tile_parts import PART_COLUMNS, TileBlocking
from nnet3_runtime_cuda.kernels.time_tiles import TimeTiles


@pytest.mark.parametrize("rows", [300, 552, 1200, 2000])
def test_changing_factors_take_no_more_memory_than_a_splice(rows: int) -> None:
    """With few rows, parameters that can change are transformed for few columns at a time."""
    input_dim, output_dim, num_taps = 1024, 1536, 3
    tiles = TimeTiles.at((0, 8, 16), rows, np.dtype(np.float32))
    assert tiles is not None

    blocking = TileBlocking.of(
        tiles, input_dim, output_dim, itemsize=4, is_fixed=False, in_panels=False, threads=1
    )

    factors = [tiles.num_products * part.shape[0] * part.shape[1] for part in blocking.parts]
    assert max(factors) <= rows * num_taps * input_dim
    assert sum(part.shape[0] for part in blocking.parts) == output_dim
    assert blocking.part_columns > 0.75 * min(rows * num_taps / tiles.num_products, PART_COLUMNS)
