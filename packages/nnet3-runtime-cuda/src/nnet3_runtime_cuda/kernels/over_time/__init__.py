"""Components that see several frames: statistics, attention, distribution."""

from __future__ import annotations

from nnet3_runtime_cuda.kernels.over_time import attention, general, statistics

__all__ = ["attention", "general", "statistics"]
