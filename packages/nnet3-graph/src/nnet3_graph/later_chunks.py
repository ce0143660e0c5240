"""Tells whether all later chunks of an endless input are computed like this one.

A term that cannot be computed is left out, and a row that an earlier chunk has computed is not
computed again. So a chunk depends on the rows that the chunks before it have. Count times from the
chunk. Between these rows and those that the next chunk finds there is a border: after it, both find
the same rows. For chunks that come later still, the border lies further back. So all of them are
computed alike if this chunk reads no row before the border, and if no row before it would make it
choose other terms.

Reads of a fixed t, as with ReplaceIndex, do not move with the chunks. Once earlier chunks have such
a row, it is there for all later ones.
"""

from __future__ import annotations

import attrs
import numpy as np
from nnet3_computation import ComputationRequest, RequestError
from nnet3_descriptors import ComponentInputNode, Nnet, OutputNode
from nnet3_descriptors.descriptors import ReplaceIndex
from nnet3_descriptors.structure import reached

from nnet3_graph.builder import NamedRows
from nnet3_graph.graph import ComputationGraph
from nnet3_graph.nodes import NodeRules, node_rules, node_users
from nnet3_graph.rows import MAX_STEPS, Reach, computable_rows, possible_hulls
from nnet3_graph.rules import ALWAYS, NEVER, All, ByTime, First, Fixed, Optional, Rule
from nnet3_graph.sets.bits import EVERYWHERE, Bits, change_layout, join
from nnet3_graph.sets.index_set import Patterns


def fixed_frame(nnet: Nnet) -> str | None:
    """Says that the output reads features at a fixed time, as "'a' reads ReplaceIndex(..), ...".

    What reads only i-vectors, through ReplaceIndex(ivector, t, 0), does not count: a chunk has an
    i-vector for all of its frames.

    Args:
        nnet: The network; its nodes have the conventional names "input", "ivector" and "output".

    Returns:
        The sentence, for an error; None if every frame is read at a distance from the output's.
    """
    numbers, rules, users = nnet.node_indexes, node_rules(nnet).rules, node_users(nnet)
    output, features = ([numbers[name]] if name in numbers else [] for name in ("output", "input"))
    needed = {*reached(output, lambda number: rules[number].sources)}
    reading = reached(features, lambda number: users[number])
    of_features = {nnet.node_names[number] for number in reading}
    for number, node in enumerate(nnet.nodes):
        if number not in needed or not isinstance(node, ComponentInputNode | OutputNode):
            continue
        pending = [leaf for part in node.descriptor.parts for leaf in part.leaves]
        while pending:
            read = pending.pop()
            pending += read.sources
            is_fixed = isinstance(read, ReplaceIndex) and read.variable == "t"
            if is_fixed and not of_features.isdisjoint(read.node_names):
                return f"'{node.name}' reads {read}, which would be another frame in each chunk"
    return None


def unsettled_node(request: ComputationRequest, graph: ComputationGraph, shift: int) -> str | None:
    """Returns a node that later chunks may compute otherwise than this one.

    Args:
        request: The request of a chunk. Those of all later chunks are the same, `shift` frames
            later each time.
        graph: The graph of the chunk, with the chunks before it as earlier segments; at least one.
        shift: The number of frames from one chunk to the next; a multiple of the modulus of the
            network.

    Returns:
        The name of the node; None if all later chunks are computed like this one.

    Raises:
        RequestError: See `build_computation_graph`; or the graph has no earlier segment.
    """
    before = graph.previous
    if before is None:
        raise RequestError("expected the graph of a chunk that comes after others")
    nodes = node_rules(graph.nnet)
    named = NamedRows.of(graph.nnet, request, before)
    if not _are_equal(named.patterns, before.grid.patterns):
        return request.outputs[0].name
    reach = _reach(named, nodes)
    if any(rule.has_fixed_t for rule in nodes.rules):
        nodes = nodes._replace(rules=_without_shared_rows(nodes, named, reach))
        reach = _reach(named, nodes)
    beyond = _rows_beyond_the_border(reach, graph, shift)
    imagined = list(reach.earlier)
    for node in named.given:
        x_first, x_last = reach.layout.hull_of(reach.given[node])[2:]
        possible = reach.layout.box(EVERYWHERE._replace(x_first=x_first, x_last=x_last))
        imagined[node] |= reach.need[node] & beyond[node] & possible
    supplied = [given | rows for given, rows in zip(reach.given, imagined, strict=True)]
    have = computable_rows(reach.nodes, reach.layout, reach.need, supplied)
    wished = reach._replace(earlier=imagined, have=have).used()
    for node, (used, wish, rows) in enumerate(zip(reach.used(), wished, beyond, strict=True)):
        is_fixed = reach.need[node] and nodes.rules[node].has_fixed_t
        if used != wish or used & rows or is_fixed:
            return graph.nnet.node_names[node]
    return None


def _are_equal(patterns: Patterns, others: Patterns) -> bool:
    return np.array_equal(patterns.sequences, others.sequences) and np.array_equal(
        patterns.pattern_of, others.pattern_of
    )


def _reach(named: NamedRows, nodes: NodeRules) -> Reach:
    """Returns the search for rows before the beginning, too.

    A row that can be computed at all follows from others without a circle through rows of one node
    at equal places of the modulus. So a recurrence has to be followed no further.
    """
    furthest = sum(
        max((abs(t) for t, _ in nodes.rules[node].moves), default=0)
        for group, is_recurrent in zip(nodes.groups, nodes.recurrent, strict=True)
        if is_recurrent
        for node in group
    )
    steps = max(MAX_STEPS[0], named.nnet.modulus * furthest)
    return named.reach(nodes, only_possible=False, max_steps=(steps, MAX_STEPS[1]))


def _rows_beyond_the_border(reach: Reach, graph: ComputationGraph, shift: int) -> list[Bits]:
    """Returns for each node the rows up to the last that only this chunk or the next one finds."""
    layout, after = reach.layout, graph.grid.layout
    moved = attrs.evolve(after, t_first=after.t_first - shift)
    beyond = []
    for rows, others in zip(reach.earlier, graph.rows_so_far, strict=True):
        different = rows ^ change_layout(others, moved, layout)
        border = EVERYWHERE._replace(t_last=layout.hull_of(different).t_last)
        beyond.append(layout.box(border) if different else 0)
    return beyond


# ---- reads of a fixed t ----


def _without_shared_rows(nodes: NodeRules, named: NamedRows, reach: Reach) -> tuple[Rule, ...]:
    """Returns the rules without those reads of a fixed t that have one answer for ever.

    Either earlier chunks have the row, or no later input makes it computable.
    """
    hulls = dict(enumerate(map(reach.layout.hull_of, reach.earlier)))
    for node in named.given:  # these rows go on without end
        hulls[node] = join(hulls[node], reach.layout.hull_of(reach.given[node]))
        hulls[node] = EVERYWHERE._replace(t_first=hulls[node].t_first)
    possible = possible_hulls(nodes, hulls)

    def without(rule: Rule, rows: Bits) -> Rule:
        """The rule of some rows without such reads."""
        match rule:
            case All(parts) | First(parts) | ByTime(parts):
                return attrs.evolve(rule, parts=tuple(without(part, rows) for part in parts))
            case Optional(part):
                return Optional(without(part, rows))
            case Fixed() if rule.has_fixed_t:
                found = rows & rule.available(rows, reach.layout, reach.earlier)
                if found == rows:
                    return ALWAYS
                return rule if found or rule.possible(possible) else NEVER
        return rule

    return tuple(map(without, nodes.rules, reach.need))
