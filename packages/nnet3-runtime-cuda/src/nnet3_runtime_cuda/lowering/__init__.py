"""From a compiled computation to calls bound to memory.

First `plan` decides the changes, by the rules in `recurrences` and `splices`, which read the
`MatrixUses` of the commands. Then `lower` goes over the commands, with their state in a `binding`
and the matrices in an `arena`. All use `areas` for the parts that submatrices cover.
"""

from __future__ import annotations

from nnet3_runtime_cuda.lowering.lower import lower as lower
from nnet3_runtime_cuda.machine import Program as Program
from nnet3_runtime_cuda.machine import Segment as Segment
