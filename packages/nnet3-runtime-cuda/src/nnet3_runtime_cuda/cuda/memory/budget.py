"""Checks that a computation fits into the free memory, and finds a minibatch that would."""

from __future__ import annotations

import numpy as np
from nnet3_computation.computation import N, NnetComputation

from nnet3_runtime_cuda.cuda.platform.platform import Properties
from nnet3_runtime_cuda.errors import DeviceMemoryError


def minibatch_size(computation: NnetComputation) -> int | None:
    """The number of sequences of a computation; None if it is not known.

    The number is known unless the compiler's option `output_debug_info` was off.
    """
    largest = 0
    for info in computation.matrix_debug_info:
        distinct = len(info.sequences) or len(np.unique(info.pattern[:, N]))
        largest = max(largest, distinct)
    return largest or None


def check_fits(
    needed_bytes: int, properties: Properties, computation: NnetComputation, *, fixed_bytes: int = 0
) -> None:
    """Checks that there is memory for a computation, before any of it is taken.

    The need of a computation is proportional to its number of sequences, except for some fixed
    bytes.

    Args:
        needed_bytes: For matrices and working memory.
        fixed_bytes: The most bytes of it that do not depend on the number of sequences.
        properties: Those of the device, with its free memory.
        computation: The computation.

    Raises:
        DeviceMemoryError: there is not enough; the message names the bytes needed, the free bytes,
            and the largest minibatch that would fit.
    """
    free = properties.free_bytes
    if needed_bytes <= free:
        return
    raise DeviceMemoryError(
        f"the computation needs {needed_bytes:,} bytes of memory on {properties.name}, of which "
        f"{free:,} bytes are free; "
        f"{_what_would_fit(needed_bytes - fixed_bytes, max(free - fixed_bytes, 0), computation)}"
    )


def _what_would_fit(needed_bytes: int, free_bytes: int, computation: NnetComputation) -> str:
    size = minibatch_size(computation)
    if size is None:
        return f"a minibatch {free_bytes / needed_bytes:.3f} times as large would fit"
    fitting = size * free_bytes // needed_bytes
    if fitting == 0:
        return f"not one sequence of the {size} would fit"
    return f"a minibatch of {fitting} instead of {size} would fit"
