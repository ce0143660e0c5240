"""Signs of numbers, packed as bits."""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

import numpy as np

from nnet3_runtime_cuda.cpu.recorder import Recorder
from nnet3_runtime_cuda.operations import Array

GATHER_BITS = np.uint64(sum(1 << (56 - 7 * bit) for bit in range(8)))
"""The factor that brings eight bytes of 0 or 1 as bits into the highest byte of the product."""


def record_pack_signs(tape: Recorder, a: Array, out: Array) -> None:
    """Records `Operations.pack_signs` with NumPy's operations."""
    columns, width = a.shape[1], out.shape[1]
    apart = tape.scratch(*out.shape, dtype=np.uint8)
    for values, packed in tape.row_blocks(a, apart):
        flags = tape.scratch(len(values), 8 * width, dtype=np.bool_)
        if columns < 8 * width:
            tape.fill(False, flags[:, columns:])
        tape.greater(values, 0.0, flags[:, :columns])
        words = flags.view(np.uint64)
        # Each of the eight bytes, 0 or 1, is shifted to its bit of the highest byte.
        tape.record(partial(np.multiply, words, GATHER_BITS, words), writes=(words,))
        tape.record(partial(np.right_shift, words, np.uint64(56), words), writes=(words,))
        tape.copy(words, packed)
    tape.copy(apart, out)


def record_unpack_signs(tape: Recorder, packed: Array, out: Array) -> None:
    """Records `Operations.unpack_signs` with NumPy's operations."""
    columns, width = out.shape[1], packed.shape[1]
    apart = packed
    if np.may_share_memory(packed, out):
        apart = tape.scratch(*packed.shape, dtype=np.uint8)
        tape.copy(packed, apart)
    table = _bits_of_bytes(out.dtype)
    for values, stored in tape.row_blocks(out, apart):
        numbers = tape.scratch(len(stored), width, dtype=np.int64)
        tape.copy(stored, numbers)
        is_whole = columns == 8 * width and values.flags.c_contiguous
        target = values if is_whole else tape.scratch(len(stored), 8 * width, dtype=out.dtype)
        tape.take_rows(table, numbers.reshape(-1), target.reshape(-1, 8))
        if not is_whole:
            tape.copy(target[:, :columns], values)


@functools.cache
def _bits_of_bytes(dtype: np.dtype[Any]) -> Array:
    """(256, 8): the bits of each byte, the lowest first, as numbers."""
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    return np.asarray(bits, dtype=dtype)
