"""Makes the plan of a computation: one trace, and one rule after another."""

from __future__ import annotations

from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet

from nnet3_runtime_cuda.lowering.capabilities import Capabilities
from nnet3_runtime_cuda.lowering.plan.deferred_derivatives import deferred_derivatives
from nnet3_runtime_cuda.lowering.plan.known_inputs import known_inputs
from nnet3_runtime_cuda.lowering.plan.plan import Plan
from nnet3_runtime_cuda.lowering.plan.splices import spliced_derivatives, spliced_inputs
from nnet3_runtime_cuda.lowering.plan.step_panels import step_panels
from nnet3_runtime_cuda.lowering.plan.trace import Trace


def plan_with(nnet: Nnet, computation: NnetComputation, can: Capabilities) -> Plan:
    """Makes the plan of a computation.

    Args:
        nnet: The network.
        computation: A computation of it, which has passed `check_runnable`.
        can: The capabilities of the machine.
    """
    trace = Trace(computation)
    early = tuple(known_inputs(trace, can))
    late = tuple(deferred_derivatives(trace, can))
    inputs, left_out = spliced_inputs(trace, can.gains_by_taps)
    panels, panel_memory = step_panels(trace, nnet, can, early, late)
    offsets = {each.position: each.taps.offsets for each in inputs}

    def agrees(position: int, derivative_offsets: tuple[int, ...]) -> bool:
        """Whether a command has the same taps for its input, or no taps there."""
        return offsets.get(position, derivative_offsets) == derivative_offsets

    return Plan(
        early=early,
        late=late,
        panels=panels,
        panel_memory=panel_memory,
        inputs=inputs,
        left_out=left_out,
        derivatives=tuple(
            each
            for each in spliced_derivatives(trace, can.gains_by_taps)
            if agrees(each.position, each.taps.offsets)
        ),
    )
