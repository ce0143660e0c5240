"""Replacing the matrix of affine components by one of lower rank."""

import logging

import attrs
import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components import (
    Component,
    LinearComponent,
    NaturalGradientAffineComponent,
)
from nnet3_descriptors.components.affine import AffineFamily
from nnet3_descriptors.descriptors import Descriptor
from nnet3_descriptors.descriptors import Node as NodeReference
from nnet3_descriptors.editing import structure
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.network_structure import (
    INPUT_SUFFIX,
    ComponentInputNode,
    ComponentNode,
    Node,
)
from nnet3_descriptors.nnet import Nnet

_LOGGER = logging.getLogger(__name__)

_RANK_IN_FIRST, _RANK_IN_SECOND, _RANK_OUT = 40, 20, 80
"""Ranks of the Fisher-matrix estimates of the components that are made, as Kaldi sets them."""


def reduce_rank(nnet: Nnet, pattern: str, rank: int) -> Nnet:
    """Returns the network with matrices replaced by the nearest ones of a lower rank.

    The shapes stay; `apply_svd` makes two smaller components instead.

    Args:
        nnet: The network.
        pattern: The names of the affine components; "*" stands for any characters.
        rank: Number of singular values to keep; components of no higher rank do not change.

    Raises:
        NetworkError: `rank` is not positive, or a matrix is not finite.
    """
    if not isinstance(rank, int | np.integer) or rank <= 0:
        raise NetworkError(f"'rank' must be positive and an integer (got {rank})")
    changed: dict[str, Component] = {}
    for name, component in structure.named_components(nnet, pattern):
        if not isinstance(component, AffineFamily):
            _LOGGER.warning(
                "Not reducing rank of component %s as it is not an AffineComponent.", name
            )
        elif min(component.input_dim, component.output_dim) <= rank:
            _LOGGER.warning(
                "Not reducing rank of component %s with SVD to rank %d because its dimension is "
                "%d -> %d",
                *(name, rank, component.input_dim, component.output_dim),
            )
        else:
            left, singular_values, right = _svd(name, component.linear_params)
            before, after = singular_values.sum(), singular_values[:rank].sum()
            _LOGGER.info(
                "For component %s singular value sum changed by reduce-rank command %g (from %g to "
                "%g)",
                *(name, before - after, before, after),
            )
            reduced = (left[:, :rank] * singular_values[:rank]) @ right[:rank]
            changed[name] = component.replace(linear_params=reduced)
    _LOGGER.info("Reduced rank of parameters of %d components.", len(changed))
    return nnet.with_components(changed)


def apply_svd(
    nnet: Nnet,
    pattern: str,
    *,
    bottleneck_dim: int | None = None,
    energy_threshold: float | None = None,
    shrinkage_threshold: float = 1.0,
) -> Nnet:
    """Returns the network with affine components split into two with a bottleneck between them.

    A component "a" with its nodes becomes a LinearComponent "a_a" and a
    NaturalGradientAffineComponent "a_b" with nodes of the same endings. Orphans are removed.

    Args:
        nnet: The network.
        pattern: The names of the affine components; "*" stands for any characters.
        bottleneck_dim: Number of singular values to keep, if no `energy_threshold` is given; a
            component without a larger dimension does not change.
        energy_threshold: Keep so many singular values that the sum of their squares is at least
            this part of all; between 0 and 1.
        shrinkage_threshold: A component does not change if its number of parameters would not
            shrink to this part.

    Raises:
        NetworkError: Neither dimension nor threshold is given, or one is out of range; or a matrix
            is not finite; or a name that is needed for a new component or node is taken.
    """
    is_dim = isinstance(bottleneck_dim, int | np.integer) and bottleneck_dim > 0
    if energy_threshold is None and not is_dim:
        found = "none" if bottleneck_dim is None else bottleneck_dim
        raise NetworkError(
            f"expected an 'energy-threshold', or a 'bottleneck-dim' of 1 or more (got {found})"
        )
    if energy_threshold is not None and not 0.0 < energy_threshold < 1.0:
        raise NetworkError(f"'energy-threshold' must be between 0 and 1 (got {energy_threshold})")
    if not np.isfinite(shrinkage_threshold):
        raise NetworkError(f"'shrinkage-threshold' must be finite (got {shrinkage_threshold})")
    pairs: dict[str, tuple[Component, Component]] = {}
    named = [*structure.named_components(nnet, pattern)]
    structure.warn_of_none(len(named), pattern, "component")
    for name, component in named:
        if not isinstance(component, AffineFamily):
            _LOGGER.warning("Not decomposing component %s as it is not an AffineComponent.", name)
            continue
        pair = _decompose(name, component, bottleneck_dim, energy_threshold, shrinkage_threshold)
        if pair is not None:
            pairs[name] = pair
    changed = _split(nnet, pairs) if pairs else nnet
    rank = "" if energy_threshold is not None else f" with SVD dimension {bottleneck_dim}"
    _LOGGER.info("Decomposed %d components%s", len(pairs), rank)
    return changed


def _svd(
    name: str, matrix: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Returns U (rows, k), the k singular values from the largest, and V transposed (k, cols).

    Raises:
        NetworkError: A value is not finite.
    """
    if not np.isfinite(matrix).all():
        raise NetworkError(
            f"component '{name}': its matrix cannot be decomposed, as not all values are finite"
        )
    left, singular_values, right = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
    return left, singular_values, right


def _decompose(
    name: str,
    component: AffineFamily,
    bottleneck_dim: int | None,
    energy_threshold: float | None,
    shrinkage_threshold: float,
) -> tuple[Component, Component] | None:
    """Returns the two components that replace one, or None if it is to stay."""
    input_dim, output_dim = component.input_dim, component.output_dim
    left, singular_values, right = _svd(name, component.linear_params)
    if energy_threshold is not None:
        energy = np.cumsum(singular_values**2)
        enough = int(np.searchsorted(energy, energy_threshold * energy[-1]))
        rank = min(enough + 1, len(singular_values))
    else:
        assert bottleneck_dim is not None
        rank = bottleneck_dim
        if min(input_dim, output_dim) <= rank:
            _LOGGER.warning(
                "Not decomposing component %s with SVD to rank %d because its dimension is "
                "%d -> %d",
                *(name, rank, input_dim, output_dim),
            )
            return None
    shrinkage = rank * (input_dim + output_dim) / (input_dim * output_dim)
    if shrinkage > shrinkage_threshold:
        _LOGGER.info(
            "Not decomposing component %s: shrinkage ratio %g is above the threshold %g",
            *(name, shrinkage, shrinkage_threshold),
        )
        return None
    before, after = np.sum(singular_values**2), np.sum(singular_values[:rank] ** 2)
    _LOGGER.info(
        "For component %s singular value squared sum changed by %g (from %g to %g)",
        *(name, before - after, before, after),
    )
    _LOGGER.info(
        "For component %s dimension reduced from  (%d,%d) to [(%d,%d), (%d,%d)]",
        *(name, input_dim, output_dim, input_dim, rank, rank, output_dim),
    )
    _LOGGER.info("shrinkage ratio : %g", shrinkage)
    scales = np.sqrt(singular_values[:rank])
    return (
        LinearComponent(
            params=(scales[:, None] * right[:rank]).astype(np.float32),
            rank_in=_RANK_IN_FIRST,
            rank_out=_RANK_OUT,
            **component.training_settings,
        ),
        NaturalGradientAffineComponent(
            linear_params=(left[:, :rank] * scales).astype(np.float32),
            bias_params=component.bias_params,
            rank_in=_RANK_IN_SECOND,
            rank_out=_RANK_OUT,
            **component.training_settings,
        ),
    )


def _split(nnet: Nnet, pairs: dict[str, tuple[Component, Component]]) -> Nnet:
    """Returns the network with components and their nodes replaced by pairs."""
    components = dict(zip(nnet.component_names, nnet.components, strict=True))
    for name, pair in pairs.items():
        for ending, component in zip(("_a", "_b"), pair, strict=True):
            if name + ending in components:
                raise NetworkError(f"there is a component '{name}{ending}' already")
            components[name + ending] = component
    split = {
        node.name: node.component
        for node in nnet.nodes
        if isinstance(node, ComponentNode) and node.component in pairs
    }
    second_names = {name: f"{name}_b" for name in split}
    nodes: list[Node] = []
    for node in nnet.nodes:
        node = structure.renamed_references(node, second_names)
        if isinstance(node, ComponentInputNode) and node.name.removesuffix(INPUT_SUFFIX) in split:
            first_name = node.name.removesuffix(INPUT_SUFFIX) + "_a"
            nodes.append(attrs.evolve(node, name=first_name + INPUT_SUFFIX))
        elif isinstance(node, ComponentNode) and node.name in split:
            nodes.extend(_pair_of_nodes(node))
        else:
            nodes.append(node)
    return structure.remove_orphans(Nnet.of(components, nodes))


def _pair_of_nodes(node: ComponentNode) -> tuple[Node, ...]:
    """Returns the nodes that replace a component node; the first gets the input of that node."""
    first, second = f"{node.name}_a", f"{node.name}_b"
    return (
        ComponentNode(name=first, component=f"{node.component}_a"),
        ComponentInputNode(
            name=second + INPUT_SUFFIX, descriptor=Descriptor((NodeReference(first),))
        ),
        ComponentNode(name=second, component=f"{node.component}_b"),
    )
