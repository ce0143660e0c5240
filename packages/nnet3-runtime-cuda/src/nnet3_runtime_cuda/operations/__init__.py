"""The operations that kernels record and machines run, and their operands.

`protocol` has the operations, `gradients` the operands of gradients, `natural_gradient` records the
natural gradient, `panels` has the layout of factors in panels, and `scratch` the working memory.
"""

from __future__ import annotations

from nnet3_runtime_cuda.operations.gradients import (
    AffineGradient,
    ColumnBlocks,
    EstimateState,
    FisherEstimate,
    GradientProduct,
    Side,
    Sides,
    TimeSplice,
)
from nnet3_runtime_cuda.operations.panels import Panels
from nnet3_runtime_cuda.operations.protocol import Array, Call, Operand, Tape

__all__ = [
    "AffineGradient",
    "Array",
    "Call",
    "ColumnBlocks",
    "EstimateState",
    "FisherEstimate",
    "GradientProduct",
    "Operand",
    "Panels",
    "Side",
    "Sides",
    "Tape",
    "TimeSplice",
]
