"""What kernels and machines have in common: the operations that are recorded, and their operands.

`protocol` says what a kernel may record, `gradients` and `natural_gradient` what it says of
gradients, `panels` how a factor may be laid out, `scratch` how working memory is shared.
"""

from __future__ import annotations

from nnet3_runtime_cuda.operations.protocol import Array, Call, Operand, Operations, Tape

__all__ = ["Array", "Call", "Operand", "Operations", "Tape"]
