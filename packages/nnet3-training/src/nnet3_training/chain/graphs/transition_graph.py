"""From phones in context to transitions: each phone becomes the states of its HMM.

Self-loops come after the other transitions: a transition leads to a state of the graph, which has
the self-loop of the HMM state that the transition leaves.
"""

from __future__ import annotations

import itertools
import math
from collections import deque

from nnet3_speech import HmmError
from nnet3_speech.hmm import ContextDependency, Transitions, topology_of

from nnet3_training.chain.fsts.fst import EPSILON
from nnet3_training.chain.fsts.graph import Arc, Graph
from nnet3_training.chain.fsts.local_epsilons import without_local_epsilons
from nnet3_training.chain.graphs.context import PhonesInContext, Window

_NO_PDF = -1
_LARGEST = 1.001
"""The largest probability of a transition: 1, and the rounding of digits in a text file."""
_START = -1
"""The class of a state that is not entered yet."""


def transition_graph(
    phones: PhonesInContext,
    tree: ContextDependency,
    transitions: Transitions,
    *,
    probabilities: bool,
) -> Graph:
    """An acceptor of transition-ids for an acceptor of phones in context.

    Args:
        phones: The acceptor, of `in_context`.
        tree: The tree.
        transitions: The transition model.
        probabilities: Whether arcs have the costs of transitions; else only those of `phones`.

    Raises:
        HmmError: a phone has no topology, or the tree no pdf for it.
    """
    hmms = _Hmms(tree, transitions, 1.0 if probabilities else 0.0)
    graph = _expanded(phones, hmms)
    return with_self_loops(graph, transitions, 1.0 if probabilities else 0.0)


def with_pdfs(graph: Graph, transitions: Transitions) -> Graph:
    """The acceptor of a graph of transition-ids, with 1 + their pdfs as labels; 0 stays."""
    labels = (transitions.pdfs + 1).tolist()
    return Graph(
        [[arc._replace(label=labels[arc.label], output=0) for arc in arcs] for arcs in graph.arcs],
        graph.finals,
    )


def _scaled(graph: Graph, scale: float) -> Graph:
    if scale == 1.0:
        return graph
    return Graph(
        [[arc._replace(cost=arc.cost * scale) for arc in arcs] for arcs in graph.arcs],
        [cost * scale if math.isfinite(cost) else cost for cost in graph.finals],
    )


class _Hmms:
    """The HMMs of phones in context, without self-loops; phones with the same pdfs share an HMM."""

    def __init__(self, tree: ContextDependency, transitions: Transitions, scale: float) -> None:
        self._tree, self._transitions, self._scale = tree, transitions, scale
        self._made: dict[tuple[int, ...], int] = {}
        self.graphs: list[Graph] = []

    def number(self, window: Window) -> int:
        """The number of the HMM of a window of phones."""
        phone = window[self._tree.central_position]
        topology = topology_of(self._transitions.model, phone)
        classes = {state.forward_pdf_class for state in topology}
        classes |= {state.self_loop_pdf_class for state in topology}
        pdfs = {each: self._tree.pdf(window, each) for each in sorted(classes) if each != _NO_PDF}
        key = (phone, *pdfs.values())
        if key not in self._made:
            self._made[key] = len(self.graphs)
            self.graphs.append(_scaled(self._hmm(phone, pdfs), self._scale))
        return self._made[key]

    def _hmm(self, phone: int, pdfs: dict[int, int]) -> Graph:
        transitions = self._transitions
        topology = topology_of(transitions.model, phone)
        graph = Graph()
        for _ in topology:
            graph.add_state()
        graph.finals[-1] = 0.0
        for number, state in enumerate(topology):
            emits = state.forward_pdf_class != _NO_PDF
            for index, (destination, probability) in enumerate(state.transitions):
                if destination == number:
                    continue
                if emits:
                    forward, loop = pdfs[state.forward_pdf_class], pdfs[state.self_loop_pdf_class]
                    known = transitions.state(phone, number, forward, loop)
                    label = int(transitions.first_ids[known]) + index
                    cost = float(transitions.costs[label] - transitions.forward_costs[known])
                else:
                    label, cost = EPSILON, _cost(phone, probability)
                graph.arcs[number].append(Arc(label, cost, destination))
        return without_local_epsilons(graph)


def _cost(phone: int, probability: float) -> float:
    if not 0.0 < probability <= _LARGEST:
        raise HmmError(
            f"the topology of phone {phone}: expected probabilities above 0 and at most 1, found "
            f"{probability:g}"
        )
    return -math.log(probability)


def _expanded(context: PhonesInContext, hmms: _Hmms) -> Graph:
    """The graph with each arc that reads a window replaced by the window's HMM.

    If only one arc leaves the start of an HMM and none enters it, the HMM begins with that arc;
    otherwise it begins with an arc that reads nothing. Each HMM ends with an arc that reads
    nothing.
    """
    result = Graph()
    source = context.graph
    entries: list[tuple[int, Arc]] = []  # number of an HMM, and the arc into it
    states: dict[tuple[int, int, int], int] = {}
    queue: deque[tuple[int, int, int]] = deque()
    between = -1  # stands for "no HMM"

    for window in context.windows:
        number = hmms.number(window)
        entries.append((number, _entry(hmms.graphs[number])))

    def state(hmm: int, hmm_state: int, context_state: int) -> int:
        triple = hmm, hmm_state, context_state
        if triple not in states:
            is_end = hmm == between
            states[triple] = result.add_state(source.finals[context_state] if is_end else math.inf)
            queue.append(triple)
        return states[triple]

    if source.num_states:
        state(between, 0, 0)
    while queue:
        hmm, hmm_state, context_state = triple = queue.popleft()
        arcs = result.arcs[states[triple]]
        if hmm == between:
            for arc in source.arcs[context_state]:
                if arc.label == EPSILON:
                    arcs.append(arc._replace(destination=state(between, 0, arc.destination)))
                    continue
                number, entry = entries[arc.label - 1]
                destination = state(number, entry.destination, arc.destination)
                arcs.append(Arc(entry.label, entry.cost + arc.cost, destination))
            continue
        for arc in hmms.graphs[hmm].arcs[hmm_state]:
            arcs.append(arc._replace(destination=state(hmm, arc.destination, context_state)))
        final = hmms.graphs[hmm].finals[hmm_state]
        if math.isfinite(final):
            arcs.append(Arc(EPSILON, final, state(between, 0, context_state)))
    return result.trimmed()


def _entry(hmm: Graph) -> Arc:
    """The arc into an HMM: its first arc, if one leaves the start and none leads back."""
    is_entered = any(arc.destination == 0 for arcs in hmm.arcs for arc in arcs)
    if (
        hmm.num_states
        and len(hmm.arcs[0]) == 1
        and not (is_entered or math.isfinite(hmm.finals[0]))
    ):
        return hmm.arcs[0][0]
    return Arc(EPSILON, 0.0, 0)


def with_self_loops(graph: Graph, transitions: Transitions, scale: float) -> Graph:
    """Adds self-loops, and the cost of leaving, to states that an emitting state leads to.

    Args:
        graph: Its labels are transition-ids, or 0 for nothing.
        transitions: The transition model.
        scale: Multiplies the costs of transitions that are added.
    """
    owner = [0] * (transitions.num_ids + 1)  # 1 + the transition state of each transition-id
    bounds = [*transitions.first_ids.tolist(), transitions.num_ids + 1]
    for state, (begin, end) in enumerate(itertools.pairwise(bounds)):
        owner[begin:end] = [state + 1] * (end - begin)
    graph = _entered_from_one(graph, owner)
    entered = [_START] * graph.num_states
    for arcs in graph.arcs:
        for arc in arcs:
            entered[arc.destination] = owner[arc.label]
    loops, forward = transitions.self_loops.tolist(), transitions.forward_costs.tolist()
    costs = transitions.costs.tolist()
    for number, each in enumerate(entered):
        if each < 1:
            continue
        leaving = forward[each - 1] * scale
        graph.finals[number] += leaving
        arcs = [arc._replace(cost=arc.cost + leaving) for arc in graph.arcs[number]]
        loop = loops[each - 1]
        if loop:
            arcs.append(Arc(loop, costs[loop] * scale, number))
        graph.arcs[number] = arcs
    return graph


def _entered_from_one(graph: Graph, owner: list[int]) -> Graph:
    """The graph with states split so that only one transition state leads to each.

    The start counts as having an entering arc that reads nothing.
    """
    entered = [_START] * graph.num_states
    entered[:1] = [0]
    several: set[int] = set()
    for arcs in graph.arcs:
        for arc in arcs:
            each = owner[arc.label]
            if entered[arc.destination] == _START:
                entered[arc.destination] = each
            elif entered[arc.destination] != each:
                several.add(arc.destination)
    result = Graph([list(arcs) for arcs in graph.arcs], list(graph.finals))
    added: dict[tuple[int, int], int] = {}
    for state in range(graph.num_states):
        for position, arc in enumerate(result.arcs[state]):
            if arc.label == EPSILON or arc.destination not in several:
                continue
            pair = arc.destination, owner[arc.label]
            if pair not in added:
                added[pair] = result.add_state()
                result.arcs[added[pair]].append(Arc(EPSILON, 0.0, arc.destination))
            result.arcs[state][position] = arc._replace(destination=added[pair])
    return result
