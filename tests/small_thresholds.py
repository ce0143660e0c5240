"""Lowers the thresholds of alternative methods, so that small networks reach them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from unittest import mock

from nnet3_compiler import backward
from nnet3_runtime_cuda.cpu import bf16, recorder, tape
from nnet3_runtime_cuda.cpu.products import PANELS
from nnet3_runtime_cuda.kernels import convolution, tile_parts, tiled_convolution, tiled_product
from nnet3_runtime_cuda.lowering import arena, recurrences, splices


@contextmanager
def gathering(seed: int) -> Iterator[None]:
    """For some seeds, has the compiler gather even a few rows whose derivatives are summed."""
    if Random(seed).randrange(3):
        yield
        return
    with mock.patch.object(backward, "is_worthwhile", lambda lists, _: lists > 0):
        yield


@contextmanager
def thresholds(seed: int) -> Iterator[None]:
    """Has small networks use some of the methods of large ones, chosen by the seed."""
    rng = Random(seed)
    settings: list[tuple[Any, str, object]] = [
        (recorder, "FEWEST_SHARED", rng.choice([1, 1, 1 << 12])),
        (bf16, "FEWEST_BF16_ROWS", 1),
    ]
    in_panels = bool(rng.randrange(2))
    if PANELS.chosen() is None:
        settings.append((tape, "panels_are_faster", lambda: in_panels))
    if rng.randrange(4):
        most = rng.choice([1, 4, 48])
        settings += [
            (recurrences, "MOST_STEP_ROWS", most),
            (recurrences, "FEWEST_EARLY", rng.choice([1, 2, 3])),
            (splices, "FEWEST_ROWS", most + 1),
            (recurrences, "FEWEST_IN_PANELS", 2),
            (recurrences, "FEWEST_PARAMETERS", 1),
        ]
    if rng.randrange(2):
        at_once = rng.choice([2, 5, 256])
        settings += [
            (recurrences, "ROWS_AT_ONCE", at_once),
            (recurrences, "CHANGING_ROWS_AT_ONCE", at_once),
            (recurrences, "DEVICE_ROWS_AT_ONCE", at_once),
        ]
    if rng.randrange(2):
        settings += [
            (tiled_product, "FEWEST_COLUMNS", 1),
            (tiled_product, "FEWEST_FIXED_ROWS", 1),
            (tiled_product, "FEWEST_CHANGING_ROWS", rng.choice([1, 10])),
            (convolution, "FEWEST_FILTERS", 1),
            (convolution, "FEWEST_HEIGHTS", 1),
            (tile_parts, "PART_COLUMNS", columns := rng.choice([3, 768])),
            (tiled_product, "PART_COLUMNS", columns),
            (tiled_product, "CHANGING_PART_COLUMNS", rng.choice([3, 384])),
            (tiled_product, "BLOCK_ROWS", rng.choice([8, 288])),
            (tiled_convolution, "BLOCK_ROWS", rng.choice([8, 96])),
        ]
    if rng.randrange(2):
        settings += [
            (recorder, "BLOCK_ELEMENTS", rng.choice([16, 64])),
            (recorder, "SUM_ELEMENTS", rng.choice([16, 64])),
            (convolution, "PATCH_BYTES", 256),
            (convolution, "FORWARD_PATCH_BYTES", 256),
            (arena, "MAX_BLOCKS", rng.choice([0, 24])),
            (tape, "FEWEST_COLUMNS", rng.choice([1, 64])),
        ]
    with ExitStack() as stack:
        for module, name, value in settings:
            stack.enter_context(mock.patch.object(module, name, value))
        yield
