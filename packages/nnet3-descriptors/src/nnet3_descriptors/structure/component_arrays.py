"""Properties of all components of a network as arrays, computed once for each network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nnet3_descriptors.components.declaration.properties import ComponentProperties
from nnet3_descriptors.frozen_arrays import frozen
from nnet3_descriptors.values import remembered

if TYPE_CHECKING:
    from nnet3_descriptors.nnet import Nnet

_UPDATABLE = int(ComponentProperties.UPDATABLE)


@remembered
def component_properties(nnet: Nnet) -> NDArray[np.int32]:
    """Returns the properties of the components of a network as (components,) int32 bits."""
    return frozen(np.array([int(each.properties) for each in nnet.components], np.int32))


@remembered
def node_dims(nnet: Nnet) -> NDArray[np.int32]:
    """Returns the number of columns of each node, (nodes,) int32."""
    return frozen(np.array([nnet.node_dim(name) for name in nnet.node_names], np.int32))


@remembered
def updated_components(nnet: Nnet) -> NDArray[np.bool_]:
    """Returns which components training changes: (components,) bool."""
    has_parameters = component_properties(nnet) & _UPDATABLE != 0
    updated = has_parameters.copy()
    for number in has_parameters.nonzero()[0].tolist():
        updated[number] = nnet.components[number].is_updated
    return frozen(updated)


@remembered
def component_dims(nnet: Nnet) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns the input and the output dimension of each component, (components,) int32 each."""
    components = nnet.components
    return (
        frozen(np.array([component.input_dim for component in components], np.int32)),
        frozen(np.array([component.output_dim for component in components], np.int32)),
    )
