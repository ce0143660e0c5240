"""What is written to some sequences of a matrix, until the same has come for all of them."""

from __future__ import annotations

import attrs

from nnet3_optimizer.equivalence.symbols.matrices import Content
from nnet3_optimizer.equivalence.symbols.stretches import Stretches


@attrs.frozen(eq=False)
class Written:
    """What was written for some sequences of a matrix so far.

    Attributes:
        content: What the matrix held before.
        rectangle: First row, first column and columns, and whether to add.
        given: What was written, the same for all of them.
        sequences: The sequences.
    """

    content: Content
    rectangle: tuple[int, int, int, bool]
    given: Stretches
    sequences: set[int]
