"""NnetComputation and its parts."""

from nnet3_compiler.computation.builder import ComputationBuilder
from nnet3_compiler.computation.computation import CommandSequence, NnetComputation
from nnet3_compiler.computation.debug_info import NO_DEBUG_INFO, NODE, MatrixDebugInfo, N, T, X
from nnet3_compiler.computation.memory_plan import MemoryPlan

__all__ = [
    "NODE",
    "NO_DEBUG_INFO",
    "CommandSequence",
    "ComputationBuilder",
    "MatrixDebugInfo",
    "MemoryPlan",
    "N",
    "NnetComputation",
    "T",
    "X",
]
