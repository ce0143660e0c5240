"""Scales of copies and sums, and constants, are those of the network's descriptors."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_computation.analysis import CommandKinds
from nnet3_computation.arrays import Bools
from nnet3_computation.checks import SUMS, Subject
from nnet3_computation.commands import ALPHA_COLUMN, SetConst
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

_SETTING = CommandKinds.of(SetConst)


def check_scales(subject: Subject) -> None:
    """Checks the scales of copies and sums, and the constants of SetConst.

    They are scales and constants of the network's descriptors; a constant may be 0, too. After the
    marker scales may be negated: `recompute_activations` computes a term of a sum by subtracting
    the other terms.
    """
    for kinds, expected, what in (
        (SUMS, scales(subject.nnet), "the scales of the network's descriptors"),
        (_SETTING, constants(subject.nnet), "the constants of the network's descriptors"),
    ):
        at = kinds.positions(subject.opcodes)
        alpha = subject.table[at, ALPHA_COLUMN].view(np.float32)
        known = _among(alpha, expected)
        if not known.all():
            known |= _among(-alpha, expected) & (subject.segment(at) > 0)
        subject.require(known, at, _ScaleMessage(alpha, expected, what))


def _among(values: npt.NDArray[np.float32], ascending: npt.NDArray[np.float32]) -> Bools:
    nearest = ascending[np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)]
    among: Bools = nearest == values
    return among


@attrs.frozen
class _ScaleMessage:
    alpha: npt.NDArray[np.float32]
    expected: npt.NDArray[np.float32]
    what: str

    def __call__(self, i: int) -> str:
        listed = ", ".join(f"{value:g}" for value in self.expected.tolist())
        return f"alpha = {self.alpha[i]:g}, expected one of {listed} ({self.what})"


@remembered
def scales(nnet: Nnet) -> npt.NDArray[np.float32]:
    """Returns the scales of descriptors, ascending; 1 is always among them."""
    found = {1.0}
    for part in _parts(nnet):
        for leaf in part.leaves:
            found |= _scales_of(leaf)
    return np.array(sorted(found), dtype=np.float32)


def _scales_of(leaf: ForwardingDescriptor) -> set[float]:
    match leaf:
        case Node():
            return {1.0}
        case Scale():
            return {leaf.factor}
        case Switch():
            return set().union(*map(_scales_of, leaf.sources))
        case Offset() | Round() | ReplaceIndex():
            return _scales_of(leaf.source)
    raise TypeError(f"no scale of a {type(leaf).__name__}")


@remembered
def constants(nnet: Nnet) -> npt.NDArray[np.float32]:
    """Returns the constants of descriptors, ascending; 0 is always among them."""
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


@remembered
def _parts(nnet: Nnet) -> tuple[SumDescriptor, ...]:
    """Returns the parts of all descriptors, except parts that only name a node."""
    with_descriptors = [
        node for node in nnet.nodes if isinstance(node, ComponentInputNode | OutputNode)
    ]
    return tuple(
        part
        for node in with_descriptors
        for part in node.descriptor.parts
        if type(part) is not Node
    )
