"""The computation graph, found one cindex at a time: slow and simple.

Cindexes are tuples (node name, n, t, x), and sets of them Python sets. The search covers everything
that the outputs might read, directly or not, within a margin around the request's t and x. The
margin must be larger than the chain of offsets of any network in the tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import attrs
import numpy as np
from nnet3_computation import ComputationRequest, IoSpecification
from nnet3_descriptors import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Nnet,
    OutputNode,
)
from nnet3_descriptors import descriptors as d

Index = tuple[int, int, int]
Cindex = tuple[str, int, int, int]


def map_to_input(leaf: d.ForwardingDescriptor, index: Index) -> Cindex:
    """The cindex that a forwarding descriptor reads."""
    n, t, x = index
    match leaf:
        case d.Node(name):
            return (name, n, t, x)
        case d.Scale(_, source):
            return map_to_input(source, index)
        case d.Offset(source, t_offset, x_offset):
            return map_to_input(source, (n, t + t_offset, x + x_offset))
        case d.Switch(sources):
            return map_to_input(sources[t % len(sources)], index)
        case d.Round(source, t_modulus):
            return map_to_input(source, (n, t // t_modulus * t_modulus, x))
        case d.ReplaceIndex(source, "t", value):
            return map_to_input(source, (n, value, x))
        case d.ReplaceIndex(source, "x", value):
            return map_to_input(source, (n, t, value))
    raise TypeError(leaf)


def inputs_of_sum(part: d.SumDescriptor, index: Index) -> set[Cindex]:
    """All cindexes that a sum descriptor might read."""
    return {map_to_input(leaf, index) for leaf in part.leaves}


def evaluate_sum(part: d.SumDescriptor, index: Index, have: set[Cindex]) -> set[Cindex] | None:
    """The cindexes that a sum reads if exactly `have` are computable; None if it cannot be."""
    match part:
        case d.ForwardingDescriptor():
            cindex = map_to_input(part, index)
            return {cindex} if cindex in have else None
        case d.Sum(first, second):
            one, other = evaluate_sum(first, index, have), evaluate_sum(second, index, have)
            return None if one is None or other is None else one | other
        case d.Failover(first, second):
            one = evaluate_sum(first, index, have)
            return evaluate_sum(second, index, have) if one is None else one
        case d.IfDefined(source):
            return evaluate_sum(source, index, have) or set()
        case d.Const():
            return set()
    raise TypeError(part)


@attrs.frozen
class OneByOne:
    """The graph of a request.

    Attributes:
        examined: All cindexes that the search covered.
        computable: Those of them that can be computed.
        used: For each cindex that the outputs need, the cindexes that it reads.
        given: The given cindexes.
        earlier: The cindexes of earlier segments.
        missing_outputs: The requested cindexes that cannot be computed.
        is_endless: Whether the needed cindexes reach the margin.
        goes_on: Whether the computable cindexes, needed or not, reach the margin.
    """

    examined: set[Cindex]
    computable: set[Cindex]
    used: dict[Cindex, set[Cindex]]
    given: set[Cindex]
    earlier: frozenset[Cindex]
    missing_outputs: set[Cindex]
    is_endless: bool
    goes_on: bool

    @property
    def cindexes(self) -> set[Cindex]:
        """The cindexes of the pruned graph."""
        return set(self.used) - self.earlier | self.given


def rows(ios: Iterable[IoSpecification]) -> set[Cindex]:
    """The cindexes of some inputs or outputs."""
    return {(io.name, *index) for io in ios for index in map(tuple, io.indexes.tolist())}


def might_read(nnet: Nnet, cindex: Cindex) -> set[Cindex]:
    """All cindexes that a cindex might read."""
    name, *rest = cindex
    index: Index = (rest[0], rest[1], rest[2])
    match nnet.node(name):
        case InputNode():
            return set()
        case DimRangeNode(source=source):
            return {(source, *index)}
        case ComponentInputNode(descriptor=descriptor) | OutputNode(descriptor=descriptor):
            return set().union(*(inputs_of_sum(part, index) for part in descriptor.parts))
        case ComponentNode() as node:
            component = nnet.component_of(node)
            _, inputs = component.input_dependencies(np.array([index], dtype=np.int32))
            return {(f"{name}_input", *found) for found in map(tuple, inputs.tolist())}


def evaluate(nnet: Nnet, cindex: Cindex, have: set[Cindex]) -> set[Cindex] | None:
    """The cindexes that a cindex reads if exactly `have` are computable; None if it cannot be."""
    name, *rest = cindex
    index: Index = (rest[0], rest[1], rest[2])
    match nnet.node(name):
        case InputNode():
            return None
        case DimRangeNode(source=source):
            return {(source, *index)} if (source, *index) in have else None
        case ComponentInputNode(descriptor=descriptor) | OutputNode(descriptor=descriptor):
            reads: set[Cindex] = set()
            for part in descriptor.parts:
                found = evaluate_sum(part, index, have)
                if found is None:
                    return None
                reads |= found
            return reads
        case ComponentNode() as node:
            component = nnet.component_of(node)
            asked = np.array([index], dtype=np.int32)
            splits, inputs = component.input_dependencies(asked)
            cindexes = [(f"{name}_input", *found) for found in map(tuple, inputs.tolist())]
            available = np.array([each in have for each in cindexes], dtype=np.bool_)
            computable, used = component.is_computable(asked, splits, inputs, available)
            if not computable[0]:
                return None
            return {each for each, is_used in zip(cindexes, used.tolist(), strict=True) if is_used}


def closure(nnet: Nnet, start: set[Cindex], given: set[Cindex], bounds: Bounds) -> set[Cindex]:
    """All cindexes that some cindexes might read, directly or not, within bounds."""
    found, stack = set(start), sorted(start)
    while stack:
        cindex = stack.pop()
        if cindex not in given:
            new = {each for each in might_read(nnet, cindex) - found if bounds.contain(each)}
            found |= new
            stack.extend(new)
    return found


@attrs.frozen
class Bounds:
    """Bounds on t and x."""

    first: tuple[int, int]
    last: tuple[int, int]

    @classmethod
    def around(cls, request: ComputationRequest, margin: tuple[int, int]) -> Bounds:
        """Bounds at a margin around the values of t and x of a request."""
        indexes = np.concatenate([io.indexes for io in (*request.inputs, *request.outputs)])
        first_t, first_x = (indexes[:, 1:].min(axis=0) - margin).tolist()
        last_t, last_x = (indexes[:, 1:].max(axis=0) + margin).tolist()
        return cls((first_t, first_x), (last_t, last_x))

    def contain(self, cindex: Cindex) -> bool:
        """Whether a cindex lies within the bounds."""
        _, _, t, x = cindex
        return self.first[0] <= t <= self.last[0] and self.first[1] <= x <= self.last[1]


def build_one_by_one(
    nnet: Nnet,
    request: ComputationRequest,
    margin: tuple[int, int],
    step: tuple[int, int],
    earlier: frozenset[Cindex] = frozenset(),
) -> OneByOne:
    """Builds the graph.

    Args:
        nnet: The network.
        request: The request.
        earlier: The cindexes of earlier segments.
        margin: How far the search goes beyond the t and x of the request.
        step: Needed cindexes within this distance of the margin, in t or x, count as endless.
    """
    given, outputs = rows(request.inputs), rows(request.outputs)
    supplied = given | earlier
    examined = closure(nnet, outputs, supplied, Bounds.around(request, margin)) | given
    have = set(supplied)
    pending, found = sorted(examined - supplied), True
    while found:
        before = len(have)
        have.update(cindex for cindex in pending if evaluate(nnet, cindex, have) is not None)
        pending = [cindex for cindex in pending if cindex not in have]
        found = len(have) > before
    used: dict[Cindex, set[Cindex]] = {}
    stack = sorted(outputs & have)
    while stack:
        cindex = stack.pop()
        if cindex not in used:
            reads = set() if cindex in supplied else evaluate(nnet, cindex, have)
            assert reads is not None
            used[cindex] = reads
            stack.extend(reads)
    inner = Bounds.around(request, (margin[0] - step[0], margin[1] - step[1]))
    return OneByOne(
        examined=examined,
        computable=have,
        used=used,
        given=given,
        earlier=earlier,
        missing_outputs=outputs - have,
        is_endless=not all(map(inner.contain, used)),
        goes_on=not all(map(inner.contain, have - supplied)),
    )


def usable_counts(nnet: Nnet, request: ComputationRequest, graph: OneByOne) -> Counter[Cindex]:
    """The usable count of each cindex that has one.

    It is 1 for a requested cindex; for others the number of cindexes that might read it, can be
    computed, and have themselves a count. Given and earlier cindexes read nothing.
    """
    counts = Counter(rows(request.outputs))
    stack = [*counts]
    while stack:
        cindex = stack.pop()
        if cindex in graph.computable - graph.given - graph.earlier:
            reads = might_read(nnet, cindex)
            stack.extend(reads - counts.keys())
            counts.update(reads)
    return counts


def lacking_of_sum(part: d.SumDescriptor, index: Index, have: set[Cindex]) -> set[Cindex]:
    """The absent cindexes that keep a sum from being computed."""
    match part:
        case d.Sum(first, second):
            return lacking_of_sum(first, index, have) | lacking_of_sum(second, index, have)
        case d.IfDefined():
            return set()
        case _ if evaluate_sum(part, index, have) is not None:
            return set()
        case _:
            return inputs_of_sum(part, index) - have


def terms(part: d.SumDescriptor) -> list[d.SumDescriptor]:
    """What a sum of sums consists of."""
    return (
        [each for term in part.operands for each in terms(term)]
        if isinstance(part, d.Sum)
        else [part]
    )


def lacking(nnet: Nnet, cindex: Cindex, have: set[Cindex]) -> set[Cindex]:
    """The absent cindexes to blame for one that cannot be computed.

    If terms that read nothing of the cindex's recurrence fail, only they are to blame.
    """
    name, *rest = cindex
    index: Index = (rest[0], rest[1], rest[2])
    match nnet.node(name):
        case ComponentInputNode(descriptor=descriptor) | OutputNode(descriptor=descriptor):
            members = recurrence_of(nnet, name)
            found: dict[bool, set[Cindex]] = {True: set(), False: set()}
            for term in (each for part in descriptor.parts for each in terms(part)):
                is_inside = any(node in members for node, *_ in inputs_of_sum_at_any_time(term))
                found[is_inside] |= lacking_of_sum(term, index, have)
            return found[False] or found[True]
        case ComponentNode():
            reads = might_read(nnet, cindex)
            required = {each for each in reads if evaluate(nnet, cindex, reads - {each}) is None}
            return (required or reads) - have
    return might_read(nnet, cindex) - have


def inputs_of_sum_at_any_time(part: d.SumDescriptor) -> set[Cindex]:
    """The cindexes that a sum might read at enough times for any Switch."""
    return {each for t in range(60) for each in inputs_of_sum(part, (0, t, 0))}


def recurrence_of(nnet: Nnet, name: str) -> set[str]:
    """The nodes that a node reads, directly or not, and that read it."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        stack = [start]
        while stack:
            new = sources_of(nnet, stack.pop()) - found
            found |= new
            stack.extend(new)
        return found

    return {each for each in reached(name) if name in reached(each)}


def sources_of(nnet: Nnet, name: str) -> set[str]:
    """The nodes that a node names."""
    match nnet.node(name):
        case DimRangeNode(source=source):
            return {source}
        case ComponentInputNode(descriptor=descriptor) | OutputNode(descriptor=descriptor):
            return {
                node for part in descriptor.parts for node, *_ in inputs_of_sum_at_any_time(part)
            }
        case ComponentNode():
            return {f"{name}_input"}
    return set()


def blamed_one_by_one(nnet: Nnet, graph: OneByOne, bounds: Bounds) -> set[Cindex] | None:
    """All cindexes to blame for the missing outputs; None if some lie out of bounds."""
    found, stack = set(graph.missing_outputs), sorted(graph.missing_outputs)
    while stack:
        new = lacking(nnet, stack.pop(), graph.computable) - found
        if not all(map(bounds.contain, new)):
            return None
        found |= new
        stack.extend(new)
    return found
