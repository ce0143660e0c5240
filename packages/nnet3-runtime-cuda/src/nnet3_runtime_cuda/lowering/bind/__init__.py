"""A plan bound to memory: calls.

`arena` places the matrices. `regular` and `rows` turn lists of rows into strided views.
`pending_zeros` leaves out needless zeroing. `binding` holds the state of a pass over the commands.
`by_position` and `step_products` look up the changes of the plan. `commands/` binds the commands of
each class.
"""

from __future__ import annotations

# The import registers the functions that bind commands.
from nnet3_runtime_cuda.lowering.bind import commands as commands
