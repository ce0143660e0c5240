"""All trainable values of a network as one vector, and the switch between training and test."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3_descriptors.components.declaration.base import Component
from nnet3_descriptors.errors import NetworkError
from nnet3_descriptors.frozen_arrays import check_finite, single_precision
from nnet3_descriptors.nnet import Nnet


def vectorize(nnet: Nnet) -> NDArray[np.float32]:
    """Returns the parameters of all updatable components as one vector, in Kaldi's order.

    Returns:
        (num_parameters,) float32: component by component, in each component in the order of its
        `parameters`, matrices row by row.
    """
    pieces = [
        array.reshape(-1)
        for component in nnet.components
        for array in component.parameter_arrays().values()
    ]
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.float32)


def unvectorize(nnet: Nnet, vector: ArrayLike) -> Nnet:
    """Returns the network with other parameters; the inverse of `vectorize`.

    Args:
        nnet: The network that gives all but the values.
        vector: (num_parameters,), finite, converted to float32.

    Raises:
        NetworkError: The vector has another shape, or a value that is not a finite number.
    """
    try:
        values = single_precision(vector)
    except (TypeError, ValueError) as error:
        raise NetworkError(f"the vector must be numbers: {error}") from error
    if values.shape != (nnet.num_parameters,):
        raise NetworkError(
            f"the vector must have the shape ({nnet.num_parameters},) (got {values.shape})"
        )
    components: dict[str, Component] = {}
    start = 0
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        changed = {}
        for field, array in component.parameter_arrays().items():
            changed[field] = values[start : start + array.size].reshape(array.shape)
            try:
                check_finite(changed[field])
            except ValueError as error:
                raise NetworkError(f"'{name}.{field}' must be finite: {error}") from error
            start += array.size
        if changed:
            components[name] = component.with_parameters(changed)
    return nnet.with_components(components)


def set_test_mode(nnet: Nnet, on: bool = True) -> Nnet:
    """Returns the network with batch-norm and dropout components in test mode, or out of it.

    In test mode batch-norm uses the stored statistics, and dropout lets everything pass.

    Args:
        nnet: The network.
        on: Whether test mode is wanted.
    """
    return nnet.with_components(
        {
            name: component.with_test_mode(on)
            for name, component in zip(nnet.component_names, nnet.components, strict=True)
        }
    )
