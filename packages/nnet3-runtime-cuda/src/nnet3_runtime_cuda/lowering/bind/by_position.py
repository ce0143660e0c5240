"""A plan by the positions of the commands that it changes."""

from __future__ import annotations

from nnet3_runtime_cuda.lowering.plan.plan import (
    EarlyProduct,
    EarlyStep,
    LateProduct,
    PanelledFactor,
    Plan,
    SplicedDerivative,
    Taps,
)


class ByPosition:
    """The changes of a plan, by the position of the command.

    Attributes:
        left_out: Positions of commands that are not bound at all.
        early: The product from which a step takes a part of its result, and the step.
        late: The product that computes the first columns of a step.
        panels: The factor of a step, in panels.
        inputs: The rows of which an input is made.
        idle: Positions of commands whose input has a matrix without content.
        derivatives: The derivative that a command sums up, its matrix and taps.
        sums: The same for the command that adds the sum.
    """

    def __init__(self, plan: Plan) -> None:
        self.early: dict[int, tuple[EarlyProduct, EarlyStep]] = {
            step.position: (product, step) for product in plan.early for step in product.steps
        }
        self.late: dict[int, LateProduct] = {
            step.position: product for product in plan.late for step in product.steps
        }
        self.panels: dict[int, PanelledFactor] = {
            position: factor for factor in plan.panels for position in factor.positions
        }
        self.inputs: dict[int, Taps] = {each.position: each.taps for each in plan.inputs}
        self.idle = frozenset(each.position for each in plan.inputs if each.is_idle)
        self.derivatives: dict[int, tuple[int, Taps]] = {
            each.position: (each.matrix, each.taps) for each in plan.derivatives
        }
        self.sums: dict[int, SplicedDerivative] = {each.added[0]: each for each in plan.derivatives}
        self.left_out = frozenset(
            [
                *plan.left_out,
                *(step.copied for product in plan.late for step in product.steps),
                *(at for each in plan.derivatives for at in each.added[1:]),
            ]
        )
