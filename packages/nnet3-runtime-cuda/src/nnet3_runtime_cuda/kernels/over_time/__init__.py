"""Components that use several frames: statistics, attention, distribution, truncation."""

from __future__ import annotations

from nnet3_runtime_cuda.kernels.over_time import attention, distribution, statistics, truncation

__all__ = ["attention", "distribution", "statistics", "truncation"]
