"""The order of commands: forward before the marker, backward after it."""

from __future__ import annotations

import numpy as np
from nnet3_computation.checks import Subject
from nnet3_computation.commands import (
    FIRST_OPERAND_COLUMN,
    Backprop,
    BackpropNoModelUpdate,
    Propagate,
    StoreStats,
)
from nnet3_descriptors.components import ComponentProperties as Property


def check_order(subject: Subject) -> None:
    """Checks that components run forward before the marker and backward after it.

    1. There is a marker.
    2. With one marker: Propagate and StoreStats come before it, both kinds of Backprop after it.
       Components that have no parameters, make no memos and are not random may run forward again in
       the backward part, which is cheaper than to keep their output.
    3. With several markers (a computation in several forward segments) nothing runs backward.
    """
    if not len(subject.segment_ends):
        subject.fail("there is no NoOperationMarker: the forward computation has no end")
    end = int(subject.segment_ends[0])
    backward = subject.positions(Backprop, BackpropNoModelUpdate)
    if len(subject.segment_ends) > 1:
        nowhere = np.zeros(len(backward), dtype=np.bool_)
        subject.require(nowhere, backward, "runs backward in a computation of several segments")
        return
    forward = subject.positions(Propagate, StoreStats)
    once_only = int(Property.UPDATABLE | Property.USES_MEMO | Property.RANDOM)
    properties = subject.analysis.component_properties
    component = subject.table[forward, FIRST_OPERAND_COLUMN]
    # Another check finds numbers out of range.
    again = properties[np.minimum(component, len(properties) - 1)] & once_only == 0
    again &= subject.opcodes[forward] == Propagate.OPCODE
    subject.require((forward < end) | again, forward, f"runs forward after the marker, c{end}")
    subject.require(backward > end, backward, f"runs backward before the marker, c{end}")
