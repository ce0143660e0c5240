"""The changes of a plan, by the positions of the commands."""

from __future__ import annotations

from nnet3_runtime_cuda.lowering.areas import Place
from nnet3_runtime_cuda.lowering.plan.plan import (
    DeferredOutput,
    EarlyProduct,
    EarlyStep,
    LateProduct,
    LateStep,
    OutputStep,
    Plan,
    SplicedDerivative,
    Taps,
)


class Changes:
    """The changes of a plan, by the position of the command, without panels.

    Attributes:
        plan: The plan.
        left_out: Commands that do not run.
        early: The product from which a Propagate takes its first columns.
        late: The product that computes the first columns of a backward command.
        outputs: The product that computes the last columns of a Propagate.
        inputs: The place that a command reads instead of its input.
        idle: Commands that use the memory of their input's matrix for other things.
        sums: The place in which the command adds up the blocks of an input derivative.
        added: The derivative whose sum a command adds.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.early: dict[int, tuple[EarlyProduct, EarlyStep]] = {}
        self.late: dict[int, tuple[LateProduct, LateStep]] = {}
        self.outputs: dict[int, tuple[DeferredOutput, OutputStep]] = {}
        self.inputs: dict[int, Taps] = {each.position: each.taps for each in plan.inputs}
        self.idle = {each.position for each in plan.inputs if each.is_idle}
        self.sums: dict[int, Taps] = {each.position: each.taps for each in plan.derivatives}
        self.added: dict[int, SplicedDerivative] = {
            each.added[0]: each for each in plan.derivatives
        }
        self.left_out = set(plan.left_out)
        for early in plan.early:
            self.early |= {step.position: (early, step) for step in early.steps}
        for late in plan.late:
            self.late |= {step.position: (late, step) for step in late.steps}
            self.left_out |= {step.copied for step in late.steps}
        for output in plan.outputs:
            self.outputs |= {step.position: (output, step) for step in output.steps}
        for derivative in plan.derivatives:
            self.left_out |= set(derivative.added[1:])

    def __bool__(self) -> bool:
        """Whether anything is changed."""
        return bool(self.left_out or self.early or self.outputs or self.inputs or self.sums)

    def places(self) -> list[Place]:
        """The places that the plan names, in matrices with the content that commands give."""
        plan = self.plan
        return [
            *(product.source for product in plan.early),
            *(product.kept for product in plan.late),
            *(step.target for product in plan.late for step in product.steps),
            *(step.target for product in plan.outputs for step in product.steps),
            *(Place(each.taps.matrix, each.taps.area) for each in plan.inputs),
            *(Place(each.taps.matrix, each.taps.area) for each in plan.derivatives),
        ]
