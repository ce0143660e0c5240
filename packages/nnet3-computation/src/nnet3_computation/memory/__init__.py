"""The bytes that a computation needs, and a place in one arena for each matrix."""

from nnet3_computation.computation import MemoryPlan
from nnet3_computation.memory.live import (
    FLOAT_BYTES,
    Bytes,
    compressed_bytes,
    live_bytes,
    matrix_bytes,
    peak_bytes,
)
from nnet3_computation.memory.plan import plan_memory, with_memory_plan

__all__ = [
    "FLOAT_BYTES",
    "Bytes",
    "MemoryPlan",
    "compressed_bytes",
    "live_bytes",
    "matrix_bytes",
    "peak_bytes",
    "plan_memory",
    "with_memory_plan",
]
