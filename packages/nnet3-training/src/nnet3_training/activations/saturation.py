"""Units of nonlinearities that hardly learn any more, found by the statistics of training."""

from __future__ import annotations

from nnet3_descriptors import Component, Nnet
from nnet3_descriptors.components import (
    RectifiedLinearComponent,
    SigmoidComponent,
    TanhComponent,
)

_LEAST: dict[type[Component], float] = {
    RectifiedLinearComponent: 0.001,
    SigmoidComponent: 0.05,
    TanhComponent: 0.2,
}
"""The average derivative below which a unit is saturated: Kaldi's thresholds of self-repair for
sigmoid and tanh; for a rectifier, the part of frames in which it is positive."""


def saturated_units(component: Component) -> tuple[int, int] | None:
    """Counts the units of a nonlinearity: those that are saturated or dead, and all.

    None if the component is not a nonlinearity that can saturate, or has no statistics.
    """
    least = _LEAST.get(type(component))
    if least is None or not getattr(component, "count", 0.0):
        return None
    averages = component.deriv_avg  # type: ignore[attr-defined]  # all three have them
    return (int((averages < least).sum()), averages.size) if averages.size else None


def saturation(nnet: Nnet) -> dict[str, float]:
    """For each component that can saturate, the share of its units that are saturated."""
    found = zip(nnet.component_names, map(saturated_units, nnet.components), strict=True)
    return {name: units[0] / units[1] for name, units in found if units is not None}
