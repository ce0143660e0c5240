"""Inputs and outputs: which nodes, when, in matrices of which size; what runs when."""

from __future__ import annotations

import numpy as np
from nnet3_compiler.commands import (
    FIRST_OPERAND_COLUMN,
    AcceptInput,
    Backprop,
    BackpropNoModelUpdate,
    Propagate,
    ProvideOutput,
    StoreStats,
)
from nnet3_descriptors import ComponentNode, InputNode, OutputNode
from nnet3_descriptors.components import ComponentProperties as Property

from nnet3_optimizer.analysis.csr import Bools, Ids
from nnet3_optimizer.checks.network import node_dims
from nnet3_optimizer.checks.subject import COLS, Subject


def check_world(subject: Subject) -> None:
    """Checks AcceptInput and ProvideOutput.

    1. The node is one of the network's, and the matrix has its dimension.
    2. Before the marker inputs are accepted and outputs provided, after it the derivatives of
       outputs are accepted and those of inputs provided. A component node may be an input. In a
       computation of several forward segments all of them are like the first.
    3. In one segment no node is accepted twice or provided twice.
    """
    at = subject.positions(AcceptInput, ProvideOutput)
    node = subject.operand(at, AcceptInput, "node")
    nodes = subject.nnet.nodes
    subject.require(
        node < len(nodes),
        at,
        lambda i: f"node = {node[i]} is out of range: the network has {len(nodes)} nodes",
    )
    dims = node_dims(subject.nnet)[node]
    subject.require_size(
        at,
        "matrix",
        subject.operand(at, AcceptInput, "matrix"),
        COLS,
        dims,
        lambda i: f"the dimension of node '{nodes[node[i]].name}'",
    )
    _check_direction(subject, at, node)
    _check_once(subject, at, node)


def _check_direction(subject: Subject, at: Ids, node: np.ndarray) -> None:
    nodes = subject.nnet.nodes
    named = [nodes[each] for each in node.tolist()]
    is_output = np.array([isinstance(each, OutputNode) for each in named], np.bool_)
    is_input = np.array([isinstance(each, InputNode | ComponentNode) for each in named], np.bool_)
    accepts = subject.opcodes[at] == AcceptInput.OPCODE
    backward = (subject.segment(at) > 0) & (len(subject.segment_ends) == 1)
    wants_input: Bools = accepts != backward
    right = np.where(wants_input, is_input, is_output)

    def message(i: int) -> str:
        part = "after" if backward[i] else "before"
        wanted = "an input" if wants_input[i] else "an output"
        kind = type(nodes[node[i]]).__name__
        return f"expected {wanted} {part} the marker, found '{nodes[node[i]].name}' ({kind})"

    subject.require(right, at, message)


def _check_once(subject: Subject, at: Ids, node: np.ndarray) -> None:
    keys = np.stack([subject.segment(at), subject.opcodes[at], node])
    seen: set[tuple[int, ...]] = set()
    once = np.ones(len(at), dtype=np.bool_)
    for i, key in enumerate(map(tuple, keys.T.tolist())):
        once[i] = key not in seen
        seen.add(key)
    subject.require(
        once, at, lambda i: f"node '{subject.nnet.nodes[node[i]].name}' is named twice in a segment"
    )


def check_order(subject: Subject) -> None:
    """Checks that components run forward before the marker and backward after it.

    1. There is a marker.
    2. With one marker: Propagate and StoreStats come before it, both kinds of Backprop after it.
       Components that have no parameters, make no memos and are not random may run forward once
       more in the backward part, which is cheaper than to keep what they gave.
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
    # Numbers out of range are found elsewhere.
    again = properties[np.minimum(component, len(properties) - 1)] & once_only == 0
    again &= subject.opcodes[forward] == Propagate.OPCODE
    subject.require((forward < end) | again, forward, f"runs forward after the marker, c{end}")
    subject.require(backward > end, backward, f"runs backward before the marker, c{end}")
