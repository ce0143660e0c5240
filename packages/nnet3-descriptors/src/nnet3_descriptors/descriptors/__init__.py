"""Descriptors: the input of a node, put together from the values of other nodes.

The text follows the grammar of `grammar`, is brought to normal form by `normalize`, and the normal
form is Descriptor > SumDescriptor > ForwardingDescriptor.
"""

from nnet3_descriptors.descriptors.base import (
    CindexSet,
    Const,
    ForwardingDescriptor,
    SumDescriptor,
)
from nnet3_descriptors.descriptors.descriptor import Descriptor
from nnet3_descriptors.descriptors.forms import (
    Failover,
    IfDefined,
    Node,
    Offset,
    ReplaceIndex,
    Round,
    Scale,
    Sum,
    Switch,
    leaves_of,
)
from nnet3_descriptors.descriptors.normalize import parse_descriptor

__all__ = [
    "CindexSet",
    "Const",
    "Descriptor",
    "Failover",
    "ForwardingDescriptor",
    "IfDefined",
    "Node",
    "Offset",
    "ReplaceIndex",
    "Round",
    "Scale",
    "Sum",
    "SumDescriptor",
    "Switch",
    "leaves_of",
    "parse_descriptor",
]
