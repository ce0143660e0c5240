"""Inputs and outputs: their nodes, the sizes of their matrices, and when they are handed over."""

from __future__ import annotations

import numpy as np
from nnet3_descriptors import ComponentNode, InputNode, OutputNode
from nnet3_descriptors.structure import node_dims

from nnet3_computation.arrays.csr import Bools, Ids
from nnet3_computation.checks.subject import COLS, Subject
from nnet3_computation.commands import AcceptInput, ProvideOutput


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
