"""NnetComputation, and what it is made of."""

from nnet3_compiler.computation.computation import CommandSequence, NnetComputation
from nnet3_compiler.computation.debug_info import NO_DEBUG_INFO, NODE, MatrixDebugInfo, N, T, X

__all__ = [
    "NODE",
    "NO_DEBUG_INFO",
    "CommandSequence",
    "MatrixDebugInfo",
    "N",
    "NnetComputation",
    "T",
    "X",
]
