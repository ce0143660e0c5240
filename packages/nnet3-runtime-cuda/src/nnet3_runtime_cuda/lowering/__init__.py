"""From a compiled computation to calls bound to memory.

First `plan` decides what is changed, then `bind` binds. `areas` says what a submatrix covers, for
both. `check` judges what was decided.
"""

from __future__ import annotations

from nnet3_runtime_cuda.lowering.check import check_plan
from nnet3_runtime_cuda.lowering.lower import lower, make_plan
from nnet3_runtime_cuda.lowering.plan.capabilities import Capabilities
from nnet3_runtime_cuda.lowering.plan.plan import Plan
from nnet3_runtime_cuda.lowering.plan.text import format_plan
from nnet3_runtime_cuda.program import Port, Program, Segment

__all__ = [
    "Capabilities",
    "Plan",
    "Port",
    "Program",
    "Segment",
    "check_plan",
    "format_plan",
    "lower",
    "make_plan",
]
