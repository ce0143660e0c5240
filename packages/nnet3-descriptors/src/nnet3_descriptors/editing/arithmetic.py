"""Weighted sums of networks: scaling one, averaging several.

Parameters are added up. Statistics are added up as sums over frames: files and fields hold averages
and numbers of frames, so the numbers are the weights of the averages. Everything else, such as
learning rates, comes from the first network.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3_descriptors.components import Component, CompositeComponent
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.frozen_arrays import real_numbers
from nnet3_descriptors.nnet import Nnet

Weights = NDArray[np.float64]


def scale(nnet: Nnet, factor: float) -> Nnet:
    """Returns the network with parameters, and sums of statistics, multiplied by a factor.

    Raises:
        NetworkError: The factor is not finite, a parameter becomes infinite in single precision,
            or a statistic no longer fits in its field.
    """
    return weighted_sum([nnet], [factor])


def average(nnets: Sequence[Nnet], weights: ArrayLike | None = None) -> Nnet:
    """Returns the average of networks that differ in parameters and statistics only.

    Args:
        nnets: The networks.
        weights: One for each network; they are divided by their sum. By default all are equal.

    Raises:
        NetworkError: Components differ in name, type or shape; the weights do not fit; or a
            parameter becomes infinite in single precision.
    """
    _check_sequence(nnets)
    factors = _factors(nnets, np.ones(len(nnets)) if weights is None else weights)
    total = factors.sum()
    if total == 0.0:
        raise NetworkError(f"the sum of the weights must not be 0 (got {factors.tolist()})")
    return weighted_sum(nnets, factors / total)


def weighted_sum(nnets: Sequence[Nnet], weights: ArrayLike) -> Nnet:
    """Returns the sum of networks, each multiplied by its weight.

    Args:
        nnets: The networks, which have the same components up to parameters and statistics.
        weights: One for each network.

    Raises:
        NetworkError: Components differ in name, type or shape; the weights do not fit; a
            parameter becomes infinite in single precision; or a number of frames is infinite.
    """
    factors = _factors(nnets, weights)
    first = nnets[0]
    for other in nnets[1:]:
        if other.component_names != first.component_names:
            names = set(other.component_names) ^ set(first.component_names)
            raise NetworkError(
                "the networks must have components of the same names, in the same order (only one "
                f"of them has {', '.join(sorted(names)[:3]) or 'the other order'})"
            )
    components = {}
    for name, group in zip(
        first.component_names, zip(*(nnet.components for nnet in nnets), strict=True), strict=True
    ):
        try:
            components[name] = _sum(group, factors)
        except NetworkError as error:
            raise NetworkError(f"component '{name}': {error}") from error
    return first.with_components(components)


def _factors(nnets: Sequence[Nnet], weights: ArrayLike) -> Weights:
    """Returns the weights of networks, (N,); raises NetworkError unless there is one for each."""
    _check_sequence(nnets)
    try:
        factors = real_numbers(weights).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise NetworkError(f"the weights must be numbers: {error}") from error
    if not nnets or factors.shape != (len(nnets),):
        raise NetworkError(
            f"there must be one weight for each network, and a network "
            f"(got {factors.size} weights, {len(nnets)} networks)"
        )
    if not np.isfinite(factors).all():
        raise NetworkError(f"the weights must be finite (got {factors.tolist()})")
    return factors


def _check_sequence(nnets: object) -> None:
    if not isinstance(nnets, Sequence):
        raise NetworkError(f"expected a sequence of networks, found {type(nnets).__name__}")
    for nnet in nnets:
        if not isinstance(nnet, Nnet):
            raise NetworkError(f"expected networks, found {type(nnet).__name__}")


def _sum(group: Sequence[Component], weights: Weights) -> Component:
    """Returns the weighted sum of components of one type."""
    first = group[0]
    if any(type(component) is not type(first) for component in group):
        types = ", ".join(component.type for component in group)
        raise NetworkError(f"the types must be the same (got {types})")
    if isinstance(first, CompositeComponent):
        parts = zip(*(part_of.components for part_of in _composites(group)), strict=True)
        return first.replace(components=tuple(_sum(part, weights) for part in parts))
    changes: dict[str, Any] = {}
    for name in first.parameters:
        changes[name] = _total(_arrays(group, name), weights)
    for spec in first.FIELDS:
        combine = _STATISTICS.get(spec.name)
        if combine is not None and spec.name not in changes:
            changes[spec.name] = combine(group, spec.name, weights)
    return first.replace(**changes)


def _composites(group: Sequence[Component]) -> list[CompositeComponent]:
    composites = [part_of for part_of in group if isinstance(part_of, CompositeComponent)]
    if len({len(part_of.components) for part_of in composites}) > 1:
        counts = ", ".join(str(len(part_of.components)) for part_of in composites)
        raise NetworkError(f"the numbers of parts must be the same (got {counts})")
    return composites


def _arrays(group: Sequence[Component], name: str) -> list[NDArray[np.float64]]:
    """Returns a field of each component; one that is empty, for no statistics, becomes zeros."""
    arrays = [np.asarray(getattr(component, name), dtype=np.float64) for component in group]
    shapes = {array.shape for array in arrays if array.size > 0} or {arrays[0].shape}
    if len(shapes) > 1:
        raise NetworkError(f"'{name}' must have the same shape (got {sorted(shapes)})")
    (shape,) = shapes
    return [array if array.size > 0 else np.zeros(shape) for array in arrays]


def _weighted(arrays: Sequence[NDArray[np.float64]], weights: Weights) -> NDArray[np.float64]:
    """Returns a weighted sum; an array without weight counts for nothing, even infinite ones."""
    total = np.zeros_like(arrays[0])
    with np.errstate(invalid="ignore"):
        for weight, array in zip(weights, arrays, strict=True):
            if weight:
                total = total + weight * array
    return total


def _total(arrays: Sequence[NDArray[np.float64]], weights: Weights) -> NDArray[np.float32]:
    total = _weighted(arrays, weights)
    with np.errstate(over="ignore"):
        single = np.asarray(total, dtype=np.float32)
    if not np.array_equal(np.isfinite(single), np.isfinite(total)):
        raise NetworkError("the sum has a number that is too large for single precision")
    return single


def _frames(group: Sequence[Component], name: str, weights: Weights) -> Weights:
    """Returns by how much the average of each component counts; these add up to 1, or are 0."""
    counts = np.array([getattr(component, name) for component in group])
    with np.errstate(over="ignore", invalid="ignore"):
        frames = weights * counts
        total = frames.sum()
    if not np.isfinite(total):
        raise NetworkError(f"'{name}', numbers of frames, must have a finite sum (got {counts})")
    return frames / total if total != 0.0 else np.zeros_like(frames)


# -- statistics -------------------------------------------------------------------------------


def _sum_totals(group: Sequence[Component], name: str, weights: Weights) -> Any:
    """Returns the sum of statistics that are sums over frames."""
    value = getattr(group[0], name)
    if isinstance(value, np.ndarray):
        return np.asarray(_weighted(_arrays(group, name), weights), dtype=value.dtype)
    total = float(weights @ [float(getattr(component, name)) for component in group])
    return int(total) if isinstance(value, int) else total


def _sum_averages(group: Sequence[Component], name: str, weights: Weights) -> Any:
    """Returns the average over the frames of all components."""
    return _total(_arrays(group, name), _frames(group, "count", weights))


def _sum_root_mean_squares(group: Sequence[Component], name: str, weights: Weights) -> Any:
    """Returns the root of the average of squares."""
    frames = _frames(group, "oderiv_count", weights)
    return np.sqrt(np.maximum(_total([a**2 for a in _arrays(group, name)], frames), 0.0))


def _sum_variances(group: Sequence[Component], name: str, weights: Weights) -> Any:
    """Returns the variance over the frames of all components, whose means differ."""
    frames = _frames(group, "count", weights)
    means = _arrays(group, "stats_mean")
    mean = _weighted(means, frames)
    with np.errstate(invalid="ignore"):
        deviations = [
            variance + (other - mean) ** 2
            for variance, other in zip(_arrays(group, name), means, strict=True)
        ]
    return np.maximum(_total(deviations, frames), 0.0)


_TOTALS: Final = (
    "count",
    "count_zeroing_boundaries",
    "entropy_stats",
    "num_clipped",
    "num_dims_processed",
    "num_dims_self_repaired",
    "num_zeroed",
    "oderiv_count",
    "posterior_stats",
    "self_repair_total",
    "stats_count",
)
_AVERAGES: Final = ("deriv_avg", "self_repair_prob", "stats_mean", "value_avg")
_STATISTICS: Final[Mapping[str, Callable[[Sequence[Component], str, Weights], Any]]] = {
    **dict.fromkeys(_TOTALS, _sum_totals),
    **dict.fromkeys(_AVERAGES, _sum_averages),
    "oderiv_rms": _sum_root_mean_squares,
    "stats_var": _sum_variances,
}
"""What adds up the statistics of each name."""
