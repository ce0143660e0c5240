"""The rows of the state that are used: later commands may read only a few of a matrix."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_runtime_onnx.program.parts import Part, Parts

Rows = NDArray[np.bool_]
"""Whether a row is used, for each row of a matrix."""


@attrs.frozen(eq=False)
class RowUse:
    """The use that a part makes of its state.

    Attributes:
        used: The rows of each matrix that operators read, or that are outputs.
        origins: For each matrix that is handed on (rows, 3): a row of it, and the given matrix and
            the row there that it copies elements from.
    """

    used: dict[int, Rows]
    origins: dict[int, NDArray[np.intp]]


def with_rows_that_matter(parts: Parts, use_of: Callable[[Part], RowUse]) -> Parts:
    """Returns parts with the rows of the state that commands read, sooner or later.

    Args:
        parts: With all rows of the state.
        use_of: Returns the use that a part makes of its state.
    """
    if not any(len(part.given) for part in parts.segments):
        return parts
    uses = [use_of(part) for part in parts.segments]
    matters = [dict(use.used) for use in uses]
    ends = [*range(1, len(uses)), parts.loop_start]
    changed = True
    while changed:
        changed = False
        for k, use in reversed(list(enumerate(uses))):
            end = ends[k]
            if end is None:
                continue
            before = _before(use, matters[end])
            for matrix, rows in before.items():
                both = matters[k][matrix] | rows
                changed |= bool((both != matters[k][matrix]).any())
                matters[k][matrix] = both
    return attrs.evolve(
        parts,
        segments=tuple(
            attrs.evolve(
                part,
                given=_numbers(matters[k]),
                handed_on={} if end is None else _numbers(matters[end]),
            )
            for k, (part, end) in enumerate(zip(parts.segments, ends, strict=True))
        ),
    )


def _before(use: RowUse, after: dict[int, Rows]) -> dict[int, Rows]:
    """Returns the rows that are copied to rows which are used afterwards."""
    found = {matrix: np.zeros_like(rows) for matrix, rows in use.used.items()}
    for matrix, rows in after.items():
        origins = use.origins[matrix]
        needed = origins[rows[origins[:, 0]]]
        for source in found:
            found[source][needed[needed[:, 1] == source, 2]] = True
    return found


def _numbers(rows: dict[int, Rows]) -> dict[int, NDArray[np.intp]]:
    """Returns the numbers of rows that matter; none of a matrix whose rows are only copied."""
    return {matrix: np.flatnonzero(each) for matrix, each in rows.items()}
