"""The settings of NumPy under which programs run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

UFUNC_BUFFER = 256
"""Elements of an operand that NumPy may buffer in an element-wise operation.

With NumPy's default of 8192, each call copies shorter rows to buffers that it allocates. So sums of
a matrix and a vector, or of parts of matrices, take up to four times as long.
"""


@contextmanager
def running() -> Iterator[None]:
    """Sets NumPy's settings for recorded calls, in this thread.

    Overflow to infinity and division by it are part of the formulas (sigmoid); log 0 is not an
    error either.
    """
    with np.errstate(all="ignore"):
        before = np.setbufsize(UFUNC_BUFFER)
        try:
            yield
        finally:
            np.setbufsize(before)
