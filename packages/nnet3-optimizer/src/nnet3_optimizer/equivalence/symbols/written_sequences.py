"""Writes to some sequences of a matrix, until all sequences have got the same elements."""

from __future__ import annotations

import attrs

from nnet3_optimizer.equivalence.symbols.matrices import Content
from nnet3_optimizer.equivalence.symbols.stretches import Stretches


@attrs.frozen(eq=False)
class Written:
    """The elements that some sequences of a matrix have got so far.

    Attributes:
        content: The content of the matrix before.
        rectangle: First row, first column and columns, and whether to add.
        given: The elements, the same for all of the sequences.
        sequences: The sequences.
    """

    content: Content
    rectangle: tuple[int, int, int, bool]
    given: Stretches
    sequences: set[int]
