"""How many bytes a computation needs, and where in one arena each matrix can live."""

from nnet3_compiler.computation import MemoryPlan
from nnet3_compiler.memory.live import (
    FLOAT_BYTES,
    Bytes,
    compressed_bytes,
    live_bytes,
    matrix_bytes,
    peak_bytes,
)
from nnet3_compiler.memory.plan import plan_memory, with_memory_plan

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
