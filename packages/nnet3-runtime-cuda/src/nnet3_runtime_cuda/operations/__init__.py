"""The operations that kernels record and machines run, and their operands.

`protocol` has the operations, `gradients` and `natural_gradient` the operands of gradients,
`panels` the layout of factors in panels, and `scratch` the shared working memory.
"""

from __future__ import annotations

from nnet3_runtime_cuda.operations.protocol import Array, Call, Operand, Operations, Tape

__all__ = ["Array", "Call", "Operand", "Operations", "Tape"]
