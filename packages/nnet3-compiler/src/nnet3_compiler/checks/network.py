"""What the checks have to know of a network, as arrays; worked out once for each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Nnet
from nnet3_descriptors.values import remembered

from nnet3_compiler.steps import Network

Dims = npt.NDArray[np.int32]


def node_dims(nnet: Nnet) -> Dims:
    """Returns the number of columns of each node, (nodes,) int32."""
    return Network.of(nnet).dim


@remembered
def component_dims(nnet: Nnet) -> tuple[Dims, Dims]:
    """Returns the input and the output dimension of each component, (components,) int32 each."""
    components = nnet.components
    return (
        _frozen([component.input_dim for component in components]),
        _frozen([component.output_dim for component in components]),
    )


def _frozen(dims: list[int]) -> Dims:
    array = np.array(dims, dtype=np.int32)
    array.flags.writeable = False
    return array
