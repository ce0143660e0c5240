"""From a compiled computation to calls bound to memory.

First `plan` decides the changes, then `bind` binds. Both use `areas` for the parts that submatrices
cover. `check` judges a plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

from nnet3_runtime_cuda.lowering.lower import lower as lower
from nnet3_runtime_cuda.lowering.lower import make_plan as make_plan

if TYPE_CHECKING:
    from nnet3_runtime_cuda.lowering.check import check_plan as check_plan
    from nnet3_runtime_cuda.lowering.plan.capabilities import Capabilities as Capabilities
    from nnet3_runtime_cuda.lowering.plan.plan import DeferredOutput as DeferredOutput
    from nnet3_runtime_cuda.lowering.plan.plan import EarlyProduct as EarlyProduct
    from nnet3_runtime_cuda.lowering.plan.plan import LateProduct as LateProduct
    from nnet3_runtime_cuda.lowering.plan.plan import PanelledFactor as PanelledFactor
    from nnet3_runtime_cuda.lowering.plan.plan import Plan as Plan
    from nnet3_runtime_cuda.lowering.plan.plan import SplicedDerivative as SplicedDerivative
    from nnet3_runtime_cuda.lowering.plan.plan import SplicedInput as SplicedInput
    from nnet3_runtime_cuda.lowering.plan.plan import format_plan as format_plan
    from nnet3_runtime_cuda.machine import Port as Port
    from nnet3_runtime_cuda.machine import Program as Program
    from nnet3_runtime_cuda.machine import Segment as Segment
else:
    __getattr__, __dir__ = on_first_use(__name__)
