"""How far the outputs of one way to run a network are from those of another."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray


@attrs.frozen
class OutputDifference:
    """How outputs differ from those that they are measured by.

    Attributes:
        rows: The number of rows of outputs.
        largest: The largest difference.
        largest_value: The largest value of an output, regardless of its sign.
        relative: The length of all differences, relative to that of all outputs.
        same_column: The share of rows whose largest value is in the same column.
    """

    rows: int
    largest: float
    largest_value: float
    relative: float
    same_column: float

    @classmethod
    def between(cls, outputs: NDArray[Any], others: NDArray[Any]) -> OutputDifference:
        """Measures other outputs by outputs; both are (rows, output_dim), with a row or more."""
        exact = outputs.astype(np.float64)
        difference = others - exact
        return cls(
            rows=len(exact),
            largest=float(np.abs(difference).max()),
            largest_value=float(np.abs(exact).max()),
            relative=float(np.linalg.norm(difference) / np.linalg.norm(exact)),
            same_column=float((exact.argmax(axis=1) == others.argmax(axis=1)).mean()),
        )

    def __str__(self) -> str:
        """All in a sentence."""
        return (
            f"{self.rows:,} rows of output differ by {self.relative:.2%}, at most by "
            f"{self.largest:.2g} (the largest value is {self.largest_value:.3g}); the largest "
            f"value is in the same column in {self.same_column:.1%} of rows"
        )
