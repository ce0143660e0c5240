"""Environment variables that choose how products are computed.

Without them, a trial finds the fastest way on this machine.
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
        values: Its possible values.
    """

    variable: str
    values: tuple[str, ...]

    def chosen(self) -> str | None:
        """The user's choice; None if the variable is not set, or empty.

        Raises:
            RunError: the variable has another value.
        """
        found = os.environ.get(self.variable, "")
        if found and found not in self.values:
            *others, last = (f"'{value}'" for value in self.values)
            expected = f"{', '.join(others)} or {last}"
            raise RunError(f"{self.variable}: expected {expected}, found '{found}'")
        return found or None


BLAS = Switch("NNET3_BLAS", ("openblas", "mkl", "numpy"))
"""The library of matrix products. "numpy" does without `cblas_sgemm`. If the chosen library is
missing, NumPy computes the products."""

PANELS = Switch("NNET3_PANELS", ("1", "0"))
"""Whether products of few rows use panels, whether or not they are faster."""

TILES = Switch("NNET3_TILES", ("1", "0"))
"""Whether convolutions use tiles, which save products; direct sums are slower and round less."""


def check_switches() -> None:
    """Raises a RunError if a variable has an unknown value.

    Otherwise the error would come only where the variable is used, maybe in the middle of the work.
    """
    for switch in (BLAS, PANELS, TILES):
        switch.chosen()
