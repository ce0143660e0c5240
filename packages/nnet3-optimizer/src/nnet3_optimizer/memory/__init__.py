"""How many bytes a computation needs, and where in one arena each matrix can live."""

from nnet3_optimizer.memory.live import live_bytes, peak_bytes
from nnet3_optimizer.memory.plan import MemoryPlan, plan_memory

__all__ = ["MemoryPlan", "live_bytes", "peak_bytes", "plan_memory"]
