"""The settings of NumPy under which programs run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

UFUNC_BUFFER = 256
"""Elements that NumPy may buffer of an operand of an element-wise operation.

With its default of 8192 it copies rows shorter than that to buffers which it allocates for the
call, so that sums of a matrix and a vector, or of parts of matrices, take up to four times longer.
"""


@contextmanager
def running() -> Iterator[None]:
    """The settings of NumPy under which recorded calls are to run, in this thread.

    Overflow to infinity and division by it are part of the formulas (sigmoid); log 0 is not an
    error either.
    """
    with np.errstate(all="ignore"):
        before = np.setbufsize(UFUNC_BUFFER)
        try:
            yield
        finally:
            np.setbufsize(before)
