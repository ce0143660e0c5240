"""The bytes that a computation needs, and a place in one arena for each matrix."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_computation.computation import MemoryPlan as MemoryPlan
    from nnet3_computation.memory.live import FLOAT_BYTES as FLOAT_BYTES
    from nnet3_computation.memory.live import Bytes as Bytes
    from nnet3_computation.memory.live import compressed_bytes as compressed_bytes
    from nnet3_computation.memory.live import live_bytes as live_bytes
    from nnet3_computation.memory.live import matrix_bytes as matrix_bytes
    from nnet3_computation.memory.live import peak_bytes as peak_bytes
    from nnet3_computation.memory.plan import plan_memory as plan_memory
    from nnet3_computation.memory.plan import with_memory_plan as with_memory_plan
else:
    __getattr__, __dir__ = on_first_use(__name__)
