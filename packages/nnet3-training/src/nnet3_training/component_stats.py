"""Statistics of activations that components gather: set to zero, and units that hardly learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from nnet3_descriptors import Nnet
from nnet3_descriptors.components import (
    BatchNormComponent,
    Component,
    CompositeComponent,
    RectifiedLinearComponent,
    SigmoidComponent,
    TanhComponent,
)

_STATISTICS = (
    "count",
    "value_avg",
    "deriv_avg",
    "oderiv_count",
    "oderiv_rms",
    "num_dims_self_repaired",
    "num_dims_processed",
    "self_repair_prob",
    "self_repair_total",
    "stats_mean",
    "stats_var",
    "num_clipped",
    "num_self_repaired",
    "num_backpropped",
    "num_zeroed",
    "count_zeroing_boundaries",
    "stats_count",
    "entropy_stats",
    "posterior_stats",
)
"""The fields of components that are statistics."""


def zero_component_stats(nnet: Nnet) -> Nnet:
    """The network with the statistics of its components set to zero.

    Batch-norm in test mode keeps its statistics, since it computes with them.
    """
    return nnet.with_components(
        {
            name: _zeroed(component)
            for name, component in zip(nnet.component_names, nnet.components, strict=True)
        }
    )


def _zeroed(component: Component) -> Component:
    if isinstance(component, CompositeComponent):
        return component.replace(components=tuple(map(_zeroed, component.components)))
    if isinstance(component, BatchNormComponent) and component.test_mode:
        return component  # in test mode it computes with its statistics
    names = {spec.name for spec in component.FIELDS}
    changes: dict[str, Any] = {}
    for name in _STATISTICS:
        if name in names:
            value = getattr(component, name)
            is_array = isinstance(value, np.ndarray)
            changes[name] = np.zeros_like(value) if is_array else type(value)(0)
    return component.replace(**changes) if changes else component


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
