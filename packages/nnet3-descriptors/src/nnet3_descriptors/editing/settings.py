"""Changing single components: learning rates, dropout, affine maps of another kind."""

import logging
import math
from typing import Final, TypeVar

import numpy as np

from nnet3_descriptors.components import (
    BlockAffineComponent,
    Component,
    CompositeComponent,
    FixedAffineComponent,
    RepeatedAffineComponent,
    UpdatableComponent,
)
from nnet3_descriptors.components.affine import AffineFamily
from nnet3_descriptors.descriptors.forms import to_single
from nnet3_descriptors.editing.structure import named_components, replace_components, warn_of_none
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.nnet import Nnet

_LOGGER = logging.getLogger(__name__)
_DROPOUT_PROPORTION: Final = "dropout_proportion"

U = TypeVar("U", bound=UpdatableComponent)


def set_learning_rate(nnet: Nnet, learning_rate: float, pattern: str = "*") -> Nnet:
    """Returns the network with other learning rates.

    Args:
        nnet: The network.
        learning_rate: The rate before the component's learning_rate_factor is applied to it.
        pattern: The names of the components; "*" stands for any characters.

    Raises:
        NetworkError: The rate is negative, or not finite in single precision, with the factor of a
            component or without.
    """
    _require_finite("learning rate", learning_rate)
    nnet, count = replace_components(
        nnet, pattern, UpdatableComponent, lambda c: _with_learning_rate(c, learning_rate)
    )
    _LOGGER.info("Set learning rates for %d components.", count)
    warn_of_none(count, pattern, "component with a learning rate")
    return nnet


def _with_learning_rate(component: U, learning_rate: float) -> U:
    if isinstance(component, CompositeComponent):
        inner = tuple(
            _with_learning_rate(part, learning_rate)
            if isinstance(part, UpdatableComponent)
            else part
            for part in component.components
        )
        component = component.replace(components=inner)
    # The product of two numbers of single precision is exact in double precision.
    rate = to_single(learning_rate) * to_single(component.learning_rate_factor)
    _require_finite("learning rate", rate)
    return component.replace(learning_rate=to_single(rate))


def set_learning_rate_factor(nnet: Nnet, factor: float, pattern: str = "*") -> Nnet:
    """Returns the network with other factors for learning rates that are set from now on.

    Args:
        nnet: The network.
        factor: The factor.
        pattern: The names of the components; "*" stands for any characters.

    Raises:
        NetworkError: The factor is negative, or not finite in single precision.
    """
    _require_finite("learning rate factor", factor)
    nnet, count = replace_components(
        nnet, pattern, UpdatableComponent, lambda c: c.replace(learning_rate_factor=factor)
    )
    _LOGGER.info("Set learning rate factors for %d components.", count)
    warn_of_none(count, pattern, "component with a learning rate")
    return nnet


def _require_finite(name: str, value: float) -> None:
    is_number = isinstance(value, int | float | np.number)
    if not is_number or not math.isfinite(to_single(value)):
        raise NetworkError(f"the {name} must be finite in single precision (got {value})")


def set_dropout_proportion(nnet: Nnet, proportion: float, pattern: str = "*") -> Nnet:
    """Returns the network with another proportion of dropout.

    Args:
        nnet: The network.
        proportion: The part, between 0 and 1.
        pattern: The names of the components; "*" stands for any characters.

    Raises:
        NetworkError: The proportion is out of range.
    """
    if not isinstance(proportion, int | float | np.number) or not 0.0 <= proportion <= 1.0:
        raise NetworkError(f"the proportion of dropout must be 0 to 1 (got {proportion!r})")
    changed = {
        name: component.replace(**{_DROPOUT_PROPORTION: proportion})
        for name, component in named_components(nnet, pattern)
        if any(spec.name == _DROPOUT_PROPORTION for spec in component.FIELDS)
    }
    _LOGGER.info("Set dropout proportions for %d components.", len(changed))
    warn_of_none(len(changed), pattern, "component with dropout")
    return nnet.with_components(changed)


def convert_to_fixed_affine(nnet: Nnet, pattern: str = "*") -> Nnet:
    """Returns the network with affine components made fixed, so that training does not change them.

    Args:
        nnet: The network.
        pattern: The names of the components; "*" stands for any characters.
    """
    nnet, count = replace_components(nnet, pattern, AffineFamily, _fixed)
    _LOGGER.info("Converted %d components to FixedAffineComponent.", count)
    warn_of_none(count, pattern, "affine component")
    return nnet


def _fixed(component: AffineFamily) -> FixedAffineComponent:
    return FixedAffineComponent(
        linear_params=component.linear_params, bias_params=component.bias_params
    )


def convert_repeated_to_block(nnet: Nnet) -> Nnet:
    """Returns the network with repeated affine components made block-affine ones.

    Training then changes the blocks, which are equal at first, each by itself.

    Args:
        nnet: The network.
    """
    return nnet.with_components(
        {
            name: _with_blocks(component)
            for name, component in named_components(nnet, "*")
            if isinstance(component, RepeatedAffineComponent | CompositeComponent)
        }
    )


def _with_blocks(component: Component) -> Component:
    if isinstance(component, CompositeComponent):
        return component.replace(components=tuple(map(_with_blocks, component.components)))
    if not isinstance(component, RepeatedAffineComponent):
        return component
    return BlockAffineComponent(
        num_blocks=component.num_repeats,
        linear_params=np.tile(component.linear_params, (component.num_repeats, 1)),
        bias_params=np.tile(component.bias_params, component.num_repeats),
        **component.training_settings,
    )
