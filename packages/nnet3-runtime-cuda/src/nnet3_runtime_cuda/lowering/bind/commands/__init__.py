"""For each command class the function that records its calls; importing registers them all."""

from __future__ import annotations

from nnet3_runtime_cuda.lowering.bind.commands import components, flow, memory, movement

__all__ = ["components", "flow", "memory", "movement"]
