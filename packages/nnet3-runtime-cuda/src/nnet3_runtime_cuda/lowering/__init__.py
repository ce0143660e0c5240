"""From a compiled computation to calls bound to memory.

First `plan` decides what is changed, then `bind` binds. `areas` says what a submatrix covers, for
both. `check` judges what was decided.
"""

from __future__ import annotations

from ..program import Port, Program, Segment
from .check import check_plan
from .lower import lower, make_plan
from .plan.capabilities import Capabilities
from .plan.plan import Plan
from .plan.text import format_plan

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
