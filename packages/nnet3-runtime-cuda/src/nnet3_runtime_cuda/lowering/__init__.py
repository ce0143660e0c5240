"""From a compiled computation to calls bound to memory.

First `plan` decides the changes, then `bind` binds. Both use `areas` for the parts that submatrices
cover. `check` judges a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

from nnet3_runtime_cuda.lowering.lower import lower, make_plan

if TYPE_CHECKING:
    from nnet3_runtime_cuda.lowering.check import check_plan
    from nnet3_runtime_cuda.lowering.plan.capabilities import Capabilities
    from nnet3_runtime_cuda.lowering.plan.plan import (
        DeferredOutput,
        EarlyProduct,
        LateProduct,
        PanelledFactor,
        Plan,
        SplicedDerivative,
        SplicedInput,
        format_plan,
    )
    from nnet3_runtime_cuda.program import Port, Program, Segment

__all__ = [
    "Capabilities",
    "DeferredOutput",
    "EarlyProduct",
    "LateProduct",
    "PanelledFactor",
    "Plan",
    "Port",
    "Program",
    "Segment",
    "SplicedDerivative",
    "SplicedInput",
    "check_plan",
    "format_plan",
    "lower",
    "make_plan",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_runtime_cuda.lowering.check": ("check_plan",),
            "nnet3_runtime_cuda.lowering.plan.capabilities": ("Capabilities",),
            "nnet3_runtime_cuda.lowering.plan.plan": (
                "DeferredOutput",
                "EarlyProduct",
                "LateProduct",
                "PanelledFactor",
                "Plan",
                "SplicedDerivative",
                "SplicedInput",
                "format_plan",
            ),
            "nnet3_runtime_cuda.program": (
                "Port",
                "Program",
                "Segment",
            ),
        },
    )
