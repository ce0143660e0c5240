"""Descriptors: the input of a node, put together from the values of other nodes.

The text follows the grammar of `grammar`, is brought to normal form by `normalize`, and the normal
form is Descriptor > SumDescriptor > ForwardingDescriptor.
"""

from nnet3_descriptors.descriptors.descriptor import Descriptor as Descriptor
from nnet3_descriptors.descriptors.descriptor import leaves_of as leaves_of
from nnet3_descriptors.descriptors.descriptor import parse_descriptor as parse_descriptor
from nnet3_descriptors.descriptors.forms import CindexSet as CindexSet
from nnet3_descriptors.descriptors.forms import Const as Const
from nnet3_descriptors.descriptors.forms import Failover as Failover
from nnet3_descriptors.descriptors.forms import ForwardingDescriptor as ForwardingDescriptor
from nnet3_descriptors.descriptors.forms import IfDefined as IfDefined
from nnet3_descriptors.descriptors.forms import Node as Node
from nnet3_descriptors.descriptors.forms import Offset as Offset
from nnet3_descriptors.descriptors.forms import ReplaceIndex as ReplaceIndex
from nnet3_descriptors.descriptors.forms import Round as Round
from nnet3_descriptors.descriptors.forms import Scale as Scale
from nnet3_descriptors.descriptors.forms import Sum as Sum
from nnet3_descriptors.descriptors.forms import SumDescriptor as SumDescriptor
from nnet3_descriptors.descriptors.forms import Switch as Switch
