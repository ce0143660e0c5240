"""Environment variables by which a user decides how products are computed.

Without them, the fastest way that this machine has is found by trying.
"""

from __future__ import annotations

import os

import attrs

from nnet3_runtime_cuda.errors import RunError


@attrs.frozen
class Switch:
    """An environment variable that chooses among a few values.

    Attributes:
        variable: Its name.
        values: What it may be.
    """

    variable: str
    values: tuple[str, ...]

    def chosen(self) -> str | None:
        """What the user has chosen; None if the variable is not set, or empty.

        Raises:
            RunError: it is something else than it may be.
        """
        found = os.environ.get(self.variable, "")
        if found and found not in self.values:
            *others, last = (f"'{value}'" for value in self.values)
            expected = f"{', '.join(others)} or {last}"
            raise RunError(f"{self.variable}: expected {expected}, found '{found}'")
        return found or None


BLAS = Switch("NNET3_BLAS", ("openblas", "mkl", "numpy"))
"""The library of matrix products. "numpy" does without `cblas_sgemm`. What is not there cannot be
chosen: products are NumPy's then."""

PANELS = Switch("NNET3_PANELS", ("1", "0"))
"""Whether there are panels for products of few rows, whatever is faster."""

TILES = Switch("NNET3_TILES", ("1", "0"))
"""Whether there are tiles where they save products; direct sums are slower and round less."""


def check_switches() -> None:
    """Raises a RunError if one of them is something else than it may be.

    Each is looked up only where it matters, which may be in the middle of the work.
    """
    for switch in (BLAS, PANELS, TILES):
        switch.chosen()
