"""What the checks have to know of a network, as arrays; worked out once for each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from nnet3_compiler.steps import Network
from nnet3_descriptors import ComponentInputNode, Nnet, OutputNode
from nnet3_descriptors.descriptors import (
    Const,
    Failover,
    ForwardingDescriptor,
    IfDefined,
    Node,
    Offset,
    ReplaceIndex,
    Round,
    Scale,
    Sum,
    SumDescriptor,
    Switch,
)
from nnet3_descriptors.values import remembered

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


@remembered
def scales(nnet: Nnet) -> npt.NDArray[np.float32]:
    """Returns the factors by which descriptors multiply what they read, ascending; 1 is one."""
    found = {1.0}
    for part in _parts(nnet):
        for leaf in part.leaves:
            found |= _scales_of(leaf)
    return np.array(sorted(found), dtype=np.float32)


def _scales_of(leaf: ForwardingDescriptor) -> set[float]:
    match leaf:
        case Scale():
            return {leaf.factor}
        case Switch():
            return set().union(*map(_scales_of, leaf.sources))
        case Offset() | Round() | ReplaceIndex():
            return _scales_of(leaf.source)
        case _:
            return {1.0}


@remembered
def constants(nnet: Nnet) -> npt.NDArray[np.float32]:
    """Returns the constants that descriptors add, ascending; 0 is one."""
    found = {0.0}
    for part in _parts(nnet):
        found |= _constants_of(part)
    return np.array(sorted(found), dtype=np.float32)


def _constants_of(part: SumDescriptor) -> set[float]:
    match part:
        case Const():
            return {part.value}
        case Sum():
            first, second = _constants_of(part.first), _constants_of(part.second)
            return {float(np.float32(a + b)) for a in first for b in second}
        case Failover():
            return _constants_of(part.first) | _constants_of(part.second)
        case IfDefined():
            return _constants_of(part.source) | {0.0}
        case _:
            return {0.0}


def _parts(nnet: Nnet) -> Iterator[SumDescriptor]:
    """Yields the parts of all descriptors that are more than the name of a node."""
    for node in nnet.nodes:
        if isinstance(node, ComponentInputNode | OutputNode):
            yield from (part for part in node.descriptor.parts if type(part) is not Node)
