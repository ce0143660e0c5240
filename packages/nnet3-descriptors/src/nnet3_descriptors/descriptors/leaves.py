"""The leaves of a descriptor, for drawings and descriptions."""

from __future__ import annotations

from collections.abc import Iterator

from nnet3_descriptors.descriptors.base import ForwardingDescriptor, SumDescriptor
from nnet3_descriptors.descriptors.descriptor import Descriptor
from nnet3_descriptors.descriptors.sums import Failover, IfDefined


def leaves_of(descriptor: Descriptor) -> Iterator[tuple[ForwardingDescriptor, bool]]:
    """Yields each forwarding descriptor, from left to right, and whether it stands below a choice.

    A leaf below IfDefined or Failover need not be computable.
    """
    for part in descriptor.parts:
        yield from _leaves(part, is_optional=False)


def _leaves(
    part: SumDescriptor, *, is_optional: bool
) -> Iterator[tuple[ForwardingDescriptor, bool]]:
    if isinstance(part, ForwardingDescriptor):
        yield part, is_optional
    optional_below = is_optional or isinstance(part, IfDefined | Failover)
    for operand in part.operands:
        yield from _leaves(operand, is_optional=optional_below)
