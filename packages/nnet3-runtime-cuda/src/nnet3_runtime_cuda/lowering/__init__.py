"""From a compiled computation to calls bound to memory.

`arena` places the matrices, `regular` and `rows` turn lists of rows into strided views,
`pending_zeros` leaves out needless zeroing, `known_inputs` finds products that can be had before a
recurrence, `deferred_derivatives` such as can be had after it, `splices` inputs whose rows lie in
another matrix, `gathered_splices` those of the rows of many matrices, `lowering` holds the state of
a pass over the commands, and `binders/` has what is done with each.
"""

from __future__ import annotations

from ..program import Port, Program, Segment
from .lower import lower

__all__ = ["Port", "Program", "Segment", "lower"]
