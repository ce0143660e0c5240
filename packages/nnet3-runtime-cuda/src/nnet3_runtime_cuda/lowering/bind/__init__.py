"""A plan bound to memory: calls.

`arena` places the matrices, `regular` and `rows` turn lists of rows into strided views,
`pending_zeros` leaves out needless zeroing, `binding` holds the state of a pass over the commands,
`by_position` and `step_products` what the plan says of each, and `commands/` has what is done with
a command of each class.
"""

from __future__ import annotations

# Registers what is done with each command.
from nnet3_runtime_cuda.lowering.bind import commands as commands
