"""The dependencies of a network's nodes: groups of nodes in cycles, and the rule of each node.

Most components compute each row from the same row of their input. The types that look along time
have closed forms: these give the same answers as the index rules of their classes, without work for
each row. The index rules of any other type are called with arrays of indexes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from nnet3_computation import RequestError
from nnet3_descriptors import (
    ComponentInputNode,
    ComponentNode,
    DimRangeNode,
    InputNode,
    Nnet,
    Node,
    OutputNode,
    check_limit,
    descriptors,
)
from nnet3_descriptors.components import Component
from nnet3_descriptors.components.index_rules import AnyWithin, AtOffsets, has_closed_form
from nnet3_descriptors.indexes import AnyIndexes
from nnet3_descriptors.structure import strongly_connected_components
from nnet3_descriptors.values import remembered

from nnet3_graph.rules import (
    ALWAYS,
    NEVER,
    All,
    AnyOf,
    Asked,
    ByTime,
    First,
    Fixed,
    InRows,
    Optional,
    Rule,
    Shift,
)
from nnet3_graph.sets.bits import BitLayout, Bits

__all__ = ["Cycle", "NodeRules", "Rule", "node_groups", "node_rules", "node_users"]


@remembered
def node_groups(nnet: Nnet) -> tuple[tuple[int, ...], ...]:
    """Groups the nodes of a network that depend on each other, in an order of computation.

    Depth-first searches begin at the nodes in their order and go along the users of each node. The
    group that such a search leaves last comes first. This rule orders groups that do not depend on
    each other.

    Returns:
        The nodes, each once, in groups. What a node reads stands before it, except for the edges
        inside a group that close a cycle.
    """
    groups = strongly_connected_components(node_users(nnet))
    return tuple(group[::-1] for group in reversed(groups))


def node_users(nnet: Nnet) -> list[list[int]]:
    """Returns for each node the nodes that read it directly, ascending: the graph of nodes."""
    position = nnet.node_indexes
    users: list[list[int]] = [[] for _ in nnet.nodes]
    for number, node in enumerate(nnet.nodes):
        for name in nnet.sources_of(node):
            users[position[name]].append(number)
    return users


_MOST_CYCLES = 4
"""The most cycles to use in a group of nodes. One is enough to go far; others help little."""


class Cycle(NamedTuple):
    """A way from a row of a node, through rows that read each other, to a row of the same node.

    Attributes:
        stops: for each node on the way its number, and the distance in t and x of its row from the
            first one; the first is the node where the way begins.
        t: the distance in t from the first row to the last.
        x: the same in x.
        open: for each node on the way, the rows from which the way goes on; -1 for all.
    """

    stops: tuple[tuple[int, int, int], ...]
    t: int
    x: int
    open: tuple[Bits, ...]

    @property
    def moves(self) -> tuple[int, int]:
        """The largest distances in t and x between the first row and another, or neighbours."""
        ts = [*(t for _, t, _ in self.stops), self.t]
        xs = [*(x for _, _, x in self.stops), self.x]
        return _largest_move(ts), _largest_move(xs)


def _largest_move(places: Sequence[int]) -> int:
    steps = (later - earlier for earlier, later in itertools.pairwise(places))
    return max(abs(move) for move in (*places, *steps))


def find_cycles(
    reads: Mapping[int, Mapping[Shift, Bits]], group: Sequence[int]
) -> tuple[Cycle, ...]:
    """Finds some ways round a group of nodes, each with another distance.

    Args:
        reads: for each of the nodes its reads at constant distances, with the rows that have them.
        group: nodes that depend on each other.

    Returns:
        The ways that a depth-first search finds first. None ends at the row where it begins.
    """
    members = set(group)

    def within(node: int) -> Iterator[tuple[Shift, Bits]]:
        return (each for each in reads[node].items() if each[0].source in members)

    found: dict[tuple[int, int], Cycle] = {}
    first = group[-1]
    path, rest, position = [(first, 0, 0)], [within(first)], {first: 0}
    taken: list[Bits] = []
    while path and len(found) < _MOST_CYCLES:
        read = next(rest[-1], None)
        if read is None:
            path.pop()
            rest.pop()
            del taken[-1:]
            continue
        shift, rows = read
        node, t, x = shift.source, path[-1][1] + shift.t, path[-1][2] + shift.x
        if node not in position:
            position[node] = len(path)
            path.append((node, t, x))
            rest.append(within(node))
            taken.append(rows)
        elif position[node] < len(path) and path[position[node]][0] == node:
            stops = path[position[node] :]
            _, first_t, first_x = stops[0]
            way = (t - first_t, x - first_x)
            if any(way) and way not in found:
                relative = tuple((each, t - first_t, x - first_x) for each, t, x in stops)
                passed = (*taken[position[node] :], rows)
                found[way] = Cycle(stops=relative, t=way[0], x=way[1], open=passed)
    return tuple(found.values())


def reads_of_any_row(rule: Rule) -> dict[Shift, Bits]:
    """Returns the reads at constant distances of every row of a rule, for `find_cycles`."""
    pending, found = [rule], {}
    while pending:
        match pending.pop():
            case Shift() as shift:
                found[shift] = -1
            case All(parts) | First(parts):
                pending += reversed(parts)
            case Optional(part):
                pending.append(part)
            case InRows((Shift() as shift, _), rows):
                found[shift] = rows
    return found


def component_rule(component: Component, source: int) -> Rule:
    """Returns the rule of a component node.

    Args:
        component: the component.
        source: the number of the component-input node.

    Raises:
        RequestError: the component's modulus is above the limit, or its closed form is for times
            that do not divide it.
    """
    component_type: Any = type(component)
    if not has_closed_form(component_type):
        return Asked(source, component)
    if component_type.closed_form is Component.closed_form:  # most components: the same row
        return Shift(source, 0, 0)
    modulus = component.modulus
    what = f"{component.type}: the frames after which its reads are the same"
    check_limit("modulus", modulus, what, RequestError)
    form = component.closed_form()
    if form is None:
        return Asked(source, component)
    if not form or modulus % len(form):
        raise RequestError(
            f"{component.type}: the closed form must have a divisor of the modulus {modulus} as "
            f"its length, found {len(form)}"
        )
    rules = tuple(_rule(reads, source) for reads in form)
    return rules[0] if len(rules) == 1 else ByTime(rules)


def _rule(reads: AtOffsets | AnyWithin | None, source: int) -> Rule:
    match reads:
        case None:
            return NEVER
        case AnyWithin(offsets=window):
            return AnyOf(source, window)
        case AtOffsets(offsets=(), optional=()):
            return ALWAYS
        case AtOffsets(offsets=(offset,), optional=()):
            return Shift(source, offset, 0)
    shifts = ((offset, Shift(source, offset, 0)) for offset in reads.offsets)
    return All(
        tuple(Optional(shift) if each in reads.optional else shift for each, shift in shifts)
    )


class NodeRules(NamedTuple):
    """The facts about a network that the graph builder needs.

    Attributes:
        rules: the rule of each node, in the order of the nodes.
        groups: the nodes, each once, in strongly connected components of the node graph: sources
            come before their readers, also inside a component, except for edges that close a cycle.
        recurrent: for each group, whether its nodes (maybe through others) read each other.
        cycles: for each group, some of the ways in which its rows read others of the same node.
        moves: the largest `abs(offset)` in t and in x of any rule.
        has_alternatives: whether some row may leave a computable source unread.
        asked: the numbers of the groups whose nodes read each other and have an `Asked` rule.
    """

    rules: tuple[Rule, ...]
    groups: tuple[tuple[int, ...], ...]
    recurrent: tuple[bool, ...]
    cycles: tuple[tuple[Cycle, ...], ...]
    moves: tuple[int, int]
    has_alternatives: bool
    asked: tuple[int, ...] = ()

    def within(self, layout: BitLayout) -> NodeRules:
        """Returns the rules for the rows of a layout: fewer rules of recurrences are `Asked`."""
        rules, cycles = list(self.rules), list(self.cycles)
        for number in self.asked:
            group = self.groups[number]
            for node in group:
                rule = rules[node]
                if isinstance(rule, Asked) and (same := rule.same_rows(layout)):
                    rules[node] = InRows((Shift(rule.source, 0, 0), rule), same)
            cycles[number] = _cycles(rules, group)
        return self._replace(rules=tuple(rules), cycles=tuple(cycles)) if self.asked else self


@remembered
def node_rules(nnet: Nnet) -> NodeRules:
    """Returns the rules of a network; they are computed once and live as long as the network."""
    rules = tuple(_node_rule(nnet, number, node) for number, node in enumerate(nnet.nodes))
    groups = node_groups(nnet)
    recurrent = [len(group) > 1 or group[0] in rules[group[0]].sources for group in groups]
    moves = {move for rule in rules for move in rule.moves}
    return NodeRules(
        rules=rules,
        groups=groups,
        recurrent=tuple(recurrent),
        cycles=tuple(
            _cycles(rules, group) if is_recurrent else ()
            for group, is_recurrent in zip(groups, recurrent, strict=True)
        ),
        asked=tuple(
            number
            for number, group in enumerate(groups)
            if recurrent[number] and any(isinstance(rules[node], Asked) for node in group)
        ),
        moves=(
            max((abs(t) for t, _ in moves), default=0),
            max((abs(x) for _, x in moves), default=0),
        ),
        has_alternatives=any(rule.has_alternatives for rule in rules),
    )


def _cycles(rules: Sequence[Rule], group: Sequence[int]) -> tuple[Cycle, ...]:
    return find_cycles({node: reads_of_any_row(rules[node]) for node in group}, group)


def _node_rule(nnet: Nnet, number: int, node: Node) -> Rule:
    match node:
        case InputNode():
            return NEVER
        case ComponentInputNode() | OutputNode():
            return descriptor_rule(node.descriptor, nnet.node_indexes)
        case ComponentNode():
            return component_rule(nnet.component_of(node), number - 1)
        case DimRangeNode():
            return Shift(nnet.node_index(node.source), 0, 0)


def descriptor_rule(descriptor: descriptors.Descriptor, node_index: Mapping[str, int]) -> Rule:
    """Returns the rule of a node that has this descriptor."""
    parts = descriptor.parts
    if len(parts) == 1:
        return _sum_rule(parts[0], node_index)
    return _all_of([_sum_rule(part, node_index) for part in parts])


def _all_of(rules: Sequence[Rule]) -> Rule:
    """Returns a rule that needs all of some rules, with no All inside All, and no part twice."""
    parts: list[Rule] = []
    for rule in rules:
        parts.extend(rule.parts if isinstance(rule, All) else [rule])
    distinct = tuple(dict.fromkeys(parts))
    return distinct[0] if len(distinct) == 1 else All(distinct)


def _sum_rule(part: descriptors.SumDescriptor, node_index: Mapping[str, int]) -> Rule:
    match part:
        case descriptors.Node(name):  # most descriptors are only the name of a node
            return Shift(node_index[name], 0, 0)
        case descriptors.ForwardingDescriptor():
            return forwarding_rule(part, node_index)
        case descriptors.Sum():
            return _all_of([_sum_rule(term, node_index) for term in _terms(part, descriptors.Sum)])
        case descriptors.Failover():
            # A repeated alternative adds nothing: if it failed once it fails again.
            tried = dict.fromkeys(
                _sum_rule(term, node_index) for term in _terms(part, descriptors.Failover)
            )
            return First(tuple(tried))
        case descriptors.IfDefined(source):
            return Optional(_sum_rule(source, node_index))
        case descriptors.Const():
            return ALWAYS
    raise TypeError(f"no rule for a {type(part).__name__}")


def _terms(
    part: descriptors.SumDescriptor, kind: type[descriptors.Sum | descriptors.Failover]
) -> Iterator[descriptors.SumDescriptor]:
    """Returns the terms of sums in sums, or of failovers in failovers, from left to right."""
    pending = [part]
    while pending:
        term = pending.pop()
        if isinstance(term, kind):
            pending += reversed(term.operands)
        else:
            yield term


def forwarding_rule(leaf: descriptors.ForwardingDescriptor, node_index: Mapping[str, int]) -> Rule:
    """Returns the rule of a forwarding descriptor.

    For the values of t that are equal modulo its modulus, a forwarding descriptor adds an offset to
    t or sets it, and likewise for x. So it is enough to look at three rows for each residue.

    Raises:
        RequestError: there are more residues than `Limits.modulus`; each needs a rule.
    """
    shift = leaf.shift()
    if shift is not None:
        name, t_offset, x_offset = shift
        return Shift(node_index[name], t_offset, x_offset)
    modulus = leaf.modulus
    check_limit("modulus", modulus, f"the frames after which '{leaf}' is the same", RequestError)
    asked = np.zeros((3, modulus, 3), dtype=np.int32)
    asked[:, :, 1] = np.arange(modulus)
    asked[1, :, 1] += modulus
    asked[2, :, 2] += 1
    found = leaf.map_unbounded(asked.reshape(-1, 3), node_index).reshape(3, modulus, 4)
    rules = [_read(asked[0, residue], found[:, residue]) for residue in range(modulus)]
    return rules[0] if len(set(rules)) == 1 else ByTime(tuple(rules))


def _read(asked: AnyIndexes, found: AnyIndexes) -> Rule:
    """Returns the rule of a descriptor, given where it maps an index and two neighbours.

    The neighbours are the index one modulus later, and the index with x + 1.

    Args:
        asked: (3,) the first index.
        found: (3, 4) what the three are mapped to.
    """
    _, t, x = asked.tolist()
    (node, _, found_t, found_x), (_, _, later_t, _), (_, _, _, next_x) = found.tolist()
    is_fixed_t, is_fixed_x = later_t == found_t, next_x == found_x
    if not is_fixed_t and not is_fixed_x:
        return Shift(node, found_t - t, found_x - x)
    return Fixed(
        source=node,
        t=0 if is_fixed_t else found_t - t,
        x=0 if is_fixed_x else found_x - x,
        fixed_t=found_t if is_fixed_t else None,
        fixed_x=found_x if is_fixed_x else None,
    )
