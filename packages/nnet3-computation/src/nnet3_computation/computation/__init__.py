"""NnetComputation and its parts."""

from nnet3_computation.computation.builder import ComputationBuilder
from nnet3_computation.computation.computation import CommandSequence, NnetComputation
from nnet3_computation.computation.debug_info import (
    NO_DEBUG_INFO,
    NODE,
    DebugInfoOfRows,
    MatrixDebugInfo,
    N,
    T,
    X,
)
from nnet3_computation.computation.memory_plan import MemoryPlan

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
