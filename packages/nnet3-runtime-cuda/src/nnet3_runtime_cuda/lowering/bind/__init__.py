"""A plan bound to memory: calls.

`arena` places the matrices, and turns lists of rows into strided views, as `rows` uses them.
`pending_zeros` leaves out needless zeroing. `binding` holds the state of a pass over the commands.
`step_products` looks up the changes of the plan. `commands` binds the commands of each class.
"""

from __future__ import annotations

# The import registers the functions that bind commands.
from nnet3_runtime_cuda.lowering.bind import commands as commands
