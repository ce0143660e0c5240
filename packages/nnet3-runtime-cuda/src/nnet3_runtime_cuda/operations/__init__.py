"""The operations that kernels record and machines run, and their operands.

`protocol` has the operations, `gradients` the operands of gradients, `natural_gradient` records the
natural gradient, `panels` has the layout of factors in panels, and `scratch` the working memory.
"""

from __future__ import annotations

from nnet3_runtime_cuda.operations.gradients import (
    AffineGradient,
    AffinePreconditioner,
    ColumnBlocks,
    EstimateState,
    FisherEstimate,
    GradientProduct,
    NaturalGradientOptions,
    Side,
    TimeSplice,
)
from nnet3_runtime_cuda.operations.panels import Panels
from nnet3_runtime_cuda.operations.protocol import Array, Call, Operand, Operations, Tape

__all__ = [
    "AffineGradient",
    "AffinePreconditioner",
    "Array",
    "Call",
    "ColumnBlocks",
    "EstimateState",
    "FisherEstimate",
    "GradientProduct",
    "NaturalGradientOptions",
    "Operand",
    "Operations",
    "Panels",
    "Side",
    "Tape",
    "TimeSplice",
]
