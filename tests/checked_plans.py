"""Plans with every legal rewrite, and a check of each plan."""

from __future__ import annotations

from collections import Counter

import attrs
from nnet3_computation import NnetComputation
from nnet3_descriptors import Nnet
from nnet3_runtime_cuda import Plan, check_plan
from nnet3_runtime_cuda.lowering.plan.make import plan_with

AFFINE_MAPS = ("FixedAffineComponent", "AffineComponent", "NaturalGradientAffineComponent")

REWRITES = (
    "early",
    "late",
    "outputs",
    "panels",
    "inputs",
    "left_out",
    "derivatives",
)
"""The fields of a plan that hold rewrites."""


@attrs.frozen
class EverythingPays:
    """Capabilities of a machine on which every legal rewrite pays.

    Attributes:
        nnet: The network.
        rows: Number of rows of products for several steps.
    """

    nnet: Nnet
    rows: int = 256

    def can_split(self, component: int) -> bool:
        """Whether it is an affine map."""
        return self.nnet.components[component].type in AFFINE_MAPS

    def rows_at_once(self, component: int) -> int:
        """`rows`, for every component."""
        return self.rows

    def gains_by_deferring(self, component: int) -> bool:
        """Always."""
        return True

    def gains_by_taps(self, component: int, rows: int, offsets: tuple[int, ...]) -> bool:
        """Whether it is an affine map."""
        return self.can_split(component)

    def gains_by_panels(self, component: int, rows: int) -> bool:
        """Always."""
        return True


def checked_plan(nnet: Nnet, computation: NnetComputation, rows: int = 256) -> Plan:
    """The checked plan with every legal rewrite."""
    plan = plan_with(nnet, computation, EverythingPays(nnet, rows))
    check_plan(nnet, computation, plan)
    return plan


def rewrites_of(plan: Plan) -> Counter[str]:
    """The number of rewrites of each kind in a plan."""
    return Counter({name: len(getattr(plan, name)) for name in REWRITES})
