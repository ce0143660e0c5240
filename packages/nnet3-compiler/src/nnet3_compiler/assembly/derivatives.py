"""Which steps need the derivative with respect to their value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nnet3_computation import ComputationRequest
from nnet3_computation.arrays import run_starts, where
from numpy.typing import NDArray

from nnet3_compiler.assembly.locations import InputLocations
from nnet3_compiler.steps.network import Network, NodeKind
from nnet3_compiler.steps.steps import Steps

BoolArray = NDArray[np.bool_]


def derivatives_needed(
    network: Network,
    requests: Sequence[ComputationRequest],
    steps: Steps,
    locations: InputLocations,
) -> BoolArray:
    """Returns which steps need a derivative: (S,) bool.

    A step needs one if it lies on a way from an input whose derivative is wanted, or from a
    component that is updated, to an output whose derivative is given. Those inputs and outputs need
    one in any case.
    """
    wanted = _wanted(network, requests, steps)
    given = _with_deriv(network, requests, steps, NodeKind.OUTPUT)
    if not wanted.any() and not given.any():
        return wanted
    user, used = step_dependencies(network, steps, locations)
    arcs = list(zip(user.tolist(), used.tolist(), strict=True))
    from_wanted = bytearray(wanted)
    for step, dependency in arcs:
        if from_wanted[dependency]:
            from_wanted[step] = 1
    to_given = bytearray(given)
    for step, dependency in reversed(arcs):
        if to_given[step]:
            to_given[dependency] = 1
    between = np.frombuffer(from_wanted, np.bool_) & np.frombuffer(to_given, np.bool_)
    inputs = steps.is_given & wanted
    return between | inputs | given


def _wanted(network: Network, requests: Sequence[ComputationRequest], steps: Steps) -> BoolArray:
    """Returns the inputs whose derivative is wanted, and the components that are updated."""
    wanted = _with_deriv(network, requests, steps, NodeKind.INPUT)
    updates = np.array([request.need_model_derivative for request in requests])
    updated: BoolArray = network.is_updated[steps.node] & updates[steps.segment] & ~steps.is_given
    return wanted | updated


def _with_deriv(
    network: Network, requests: Sequence[ComputationRequest], steps: Steps, kind: NodeKind
) -> BoolArray:
    """Returns the steps of the inputs, or of the outputs, that have derivatives."""
    has_deriv = np.zeros((len(requests), len(network.kind)), np.bool_)
    for segment, request in enumerate(requests):
        for io in request.outputs if kind is NodeKind.OUTPUT else request.inputs:
            has_deriv[segment, network.nnet.node_index(io.name)] = io.has_deriv
    is_kind = steps.is_given if kind is NodeKind.INPUT else network.kind[steps.node] == kind
    chosen: BoolArray = has_deriv[steps.segment, steps.node] & is_kind
    return chosen


def step_dependencies(
    network: Network, steps: Steps, locations: InputLocations
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns on which steps each step depends directly, as pairs (user, used), sorted by user."""
    size = len(steps)
    # a descriptor takes rows from other steps
    present = where(locations.source >= 0)
    user = np.repeat(locations.step.astype(np.int64), steps.count[locations.step])[present]
    pair = user * size + steps.step_of_row[locations.source[present]]
    pairs = [pair[run_starts(pair)]]
    # a component uses the step before it, a range of columns uses its source
    component = where((network.kind[steps.node] == NodeKind.COMPONENT) & ~steps.is_given)
    pairs.append(component * size + component - 1)
    column_range = where(steps.source >= 0)
    pairs.append(column_range * size + steps.source[column_range])
    pair = np.sort(np.concatenate(pairs))
    return np.divmod(pair[run_starts(pair)], size)
