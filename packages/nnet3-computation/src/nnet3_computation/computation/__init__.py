"""NnetComputation and its parts."""

from nnet3_computation.computation.builder import ComputationBuilder
from nnet3_computation.computation.computation import CommandSequence, NnetComputation
from nnet3_computation.computation.parts import (
    NO_DEBUG_INFO,
    NODE,
    DebugInfoOfRows,
    MatrixDebugInfo,
    MemoryPlan,
    N,
    T,
    X,
)

__all__ = [
    "NODE",
    "NO_DEBUG_INFO",
    "CommandSequence",
    "ComputationBuilder",
    "DebugInfoOfRows",
    "MatrixDebugInfo",
    "MemoryPlan",
    "N",
    "NnetComputation",
    "T",
    "X",
]
