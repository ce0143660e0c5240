"""Follows the parameters in the memory for panels."""

from __future__ import annotations

from nnet3_computation import NnetComputation

from nnet3_runtime_cuda.errors import PlanError
from nnet3_runtime_cuda.lowering.check.order import running_order
from nnet3_runtime_cuda.lowering.plan.plan import PanelledFactor, Plan


def check_panels(computation: NnetComputation, plan: Plan) -> None:
    """Checks that commands find the panels of their parameters where they were laid out.

    Raises:
        PlanError: The memory has the panels of other parameters, or none yet.
    """
    if not plan.panels:
        return
    factors = {at: factor for factor in plan.panels for at in factor.positions}
    holds: dict[int, PanelledFactor] = {}
    for position in running_order(list(computation.commands)):
        factor = factors.get(position)
        if factor is None:
            continue
        if position == factor.positions[0]:
            holds[factor.memory] = factor
        elif holds.get(factor.memory) is not factor:
            other = holds.get(factor.memory)
            found = f"those for c{other.positions[0]}" if other is not None else "none"
            raise PlanError(
                f"c{position}: the panels laid out at c{factor.positions[0]} are gone: memory "
                f"{factor.memory} holds {found}"
            )
