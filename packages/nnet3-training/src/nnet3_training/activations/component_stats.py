"""The statistics of activations that components carry, set to zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from nnet3_descriptors import Nnet
from nnet3_descriptors.components import BatchNormComponent, Component, CompositeComponent

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
