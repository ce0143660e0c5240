"""The operations that kernels record and machines run, and their operands.

`protocol` has the operations, `gradients` and `natural_gradient` the operands of gradients,
`panels` the layout of factors in panels, and `scratch` the shared working memory.
"""

from __future__ import annotations

from nnet3_runtime_cuda.operations.gradients import (
    AffineGradient,
    AffinePreconditioner,
    EstimateState,
    FisherEstimate,
    GradientProduct,
    NaturalGradientOptions,
    TimeSplice,
)
from nnet3_runtime_cuda.operations.panels import Panels
from nnet3_runtime_cuda.operations.protocol import Array, Call, Operand, Operations, Tape

__all__ = [
    "AffineGradient",
    "AffinePreconditioner",
    "Array",
    "Call",
    "EstimateState",
    "FisherEstimate",
    "GradientProduct",
    "NaturalGradientOptions",
    "Operand",
    "Operations",
    "Panels",
    "Tape",
    "TimeSplice",
]
