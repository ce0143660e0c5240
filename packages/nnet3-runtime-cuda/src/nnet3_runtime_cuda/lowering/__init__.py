"""From a compiled computation to calls bound to memory.

`arena` places the matrices, `regular` and `rows` turn lists of rows into strided views,
`pending_zeros` leaves out needless zeroing, and `lower` walks over the commands.
"""

from __future__ import annotations

from .lower import lower
from .program import Port, Program, Segment

__all__ = ["Port", "Program", "Segment", "lower"]
