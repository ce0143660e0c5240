"""From phones to phones in context, to transitions, and to the denominator FST.

First each arc reads a window of phones instead of a phone; then each phone in context becomes the
states of its HMM. Self-loops come after the other transitions: a transition leads to a state of the
graph, which has the self-loop of the HMM state that the transition leaves.

The denominator is a tree, a transition model and a phone language model as one acceptor. As in
Povey et al., "Purely sequence-trained neural networks for ASR based on lattice-free MMI"
(Interspeech 2016), section 2.3, costs are pushed, then states are joined from both sides.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from nnet3_speech import HmmError
from nnet3_speech.hmm import ContextDependency, Transitions, topology_of

from nnet3_training.chain.denominator import DenominatorGraph
from nnet3_training.chain.fsts import machines, minimization
from nnet3_training.chain.fsts.fst import EPSILON, Arc, Fst, Graph, explored, renumbered
from nnet3_training.errors import ExampleError

_NONE = 0
"""The phone of a window where there is none, before the first and behind the last."""
_END = -1
"""The symbol after the last phone while windows are filled."""

Window = tuple[int, ...]


def in_context(phones: Graph, tree: ContextDependency) -> tuple[Graph, list[Window]]:
    """Replaces each phone of an acceptor by the window of phones that the tree asks for.

    Returns:
        An acceptor whose labels are 1 + the number of a window, or 0 where the first windows are
        filled; and the windows. A state is one of the given acceptor with the last phones on the
        way to it.
    """
    if not phones.num_states:
        return Graph(), []
    width, center, right = tree.context_width, tree.central_position, tree.right_context
    source = _with_ends(phones) if right else phones
    labels: dict[Window, int] = {}

    def final(place: tuple[Window, int]) -> float:
        history, phone_state = place
        may_end = not right or history[center] == _END
        return source.finals[phone_state] if may_end else math.inf

    def arcs(place: tuple[Window, int]) -> Iterator[tuple[int, float, tuple[Window, int]]]:
        history, phone_state = place
        for arc in source.arcs[phone_state]:
            if arc.label == EPSILON:
                yield EPSILON, arc.cost, (history, arc.destination)
                continue
            if arc.label == _END and history[center] == _END:
                continue  # the window of the last phone is full
            if arc.label != _END and history and history[-1] == _END:
                continue
            full = (*history, arc.label)
            window = tuple(_NONE if phone == _END else phone for phone in full)
            is_filled = window[center] != _NONE
            label = labels.setdefault(window, len(labels) + 1) if is_filled else EPSILON
            yield label, arc.cost, (full[1:], arc.destination)

    return explored(((_NONE,) * (width - 1), 0), final, arcs), list(labels)


def _with_ends(phones: Graph) -> Graph:
    """The graph with one state after all final states; a loop there reads any number of ends."""
    result = Graph([list(arcs) for arcs in phones.arcs], list(phones.finals))
    last = result.add_state(0.0)
    result.arcs[last].append(Arc(_END, 0.0, last))
    for state, cost in enumerate(phones.finals):
        if math.isfinite(cost):
            result.arcs[state].append(Arc(_END, cost, last))
    return result


_NO_PDF = -1
_LARGEST = 1.001
"""The largest probability of a transition: 1, and the rounding of digits in a text file."""
_START = -1
"""The class of a state that is not entered yet."""


def transition_graph(
    phones: tuple[Graph, list[Window]],
    tree: ContextDependency,
    transitions: Transitions,
    *,
    probabilities: bool,
) -> Graph:
    """An acceptor of transition-ids for an acceptor of phones in context.

    Args:
        phones: The acceptor and its windows, of `in_context`.
        tree: The tree.
        transitions: The transition model.
        probabilities: Whether arcs have the costs of transitions; else only those of `phones`.

    Raises:
        HmmError: a phone has no topology, or the tree no pdf for it.
    """
    scale = 1.0 if probabilities else 0.0
    source, windows = phones
    graph = _expanded(source, *_hmms(windows, tree, transitions, scale))
    return with_self_loops(graph, transitions, scale)


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


def _hmms(
    windows: Sequence[Window], tree: ContextDependency, transitions: Transitions, scale: float
) -> tuple[list[int], list[Graph]]:
    """For each window of phones the number of its HMM; and the HMMs, without self-loops.

    Phones with the same pdfs share an HMM.
    """
    numbers: list[int] = []
    made: dict[tuple[int, ...], int] = {}
    graphs: list[Graph] = []
    for window in windows:
        phone = window[tree.central_position]
        topology = topology_of(transitions.model, phone)
        classes = {state.forward_pdf_class for state in topology}
        classes |= {state.self_loop_pdf_class for state in topology}
        pdfs = {each: tree.pdf(window, each) for each in sorted(classes) if each != _NO_PDF}
        key = (phone, *pdfs.values())
        if key not in made:
            made[key] = len(graphs)
            graphs.append(_scaled(_hmm(phone, pdfs, transitions), scale))
        numbers.append(made[key])
    return numbers, graphs


def _hmm(phone: int, pdfs: Mapping[int, int], transitions: Transitions) -> Graph:
    topology = topology_of(transitions.model, phone)
    graph = Graph([[] for _ in topology], [math.inf] * (len(topology) - 1) + [0.0])
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
    return minimization.without_local_epsilons(graph)


def _cost(phone: int, probability: float) -> float:
    if not 0.0 < probability <= _LARGEST:
        raise HmmError(
            f"the topology of phone {phone}: expected probabilities above 0 and at most 1, found "
            f"{probability:g}"
        )
    return -math.log(probability)


def _expanded(source: Graph, hmm_of_window: Sequence[int], hmms: Sequence[Graph]) -> Graph:
    """The graph with each arc that reads a window replaced by the window's HMM.

    A place in it is the number of an HMM and a state in it, and a state of `source`.

    If only one arc leaves the start of an HMM and none enters it, the HMM begins with that arc;
    otherwise it begins with an arc that reads nothing. Each HMM ends with an arc that reads
    nothing.
    """
    if not source.num_states:
        return source
    entries = [_entry(hmm) for hmm in hmms]
    between = -1  # stands for "no HMM"

    def final(place: tuple[int, int, int]) -> float:
        hmm, _, context_state = place
        return source.finals[context_state] if hmm == between else math.inf

    def arcs(place: tuple[int, int, int]) -> Iterator[tuple[int, float, tuple[int, int, int]]]:
        hmm, hmm_state, context_state = place
        if hmm == between:
            for arc in source.arcs[context_state]:
                if arc.label == EPSILON:
                    yield EPSILON, arc.cost, (between, 0, arc.destination)
                else:
                    number = hmm_of_window[arc.label - 1]
                    label, cost, first, _ = entries[number]
                    yield label, cost + arc.cost, (number, first, arc.destination)
            return
        for arc in hmms[hmm].arcs[hmm_state]:
            yield arc.label, arc.cost, (hmm, arc.destination, context_state)
        end = hmms[hmm].finals[hmm_state]
        if math.isfinite(end):
            yield EPSILON, end, (between, 0, context_state)

    return explored((between, 0, 0), final, arcs).trimmed()


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


_LOGGER = logging.getLogger(__name__)

_DELTA = 1.0 / 1024.0
"""OpenFst's tolerance of costs."""
_ROUNDED = 10.0 * _DELTA
"""Costs are rounded to multiples of it when states are compared."""
_PUSHED = 0.01 * _DELTA
_PASSES = 3


def make_denominator_fst(phone_lm: Fst, tree: ContextDependency, transitions: Transitions) -> Fst:
    """The acceptor of all phone sequences as sequences of pdfs, with their probabilities.

    Args:
        phone_lm: An acceptor of phones, such as `estimate_phone_lm` makes.
        tree: The tree.
        transitions: The transition model.

    Returns:
        An acceptor without epsilons, whose labels are 1 + the number of a pdf. The weights of each
        state sum to about the same, and states with many arcs come first.

    Raises:
        ExampleError: the phone language model is not an acceptor, or has no path.
        HmmError: a phone has no topology, or the tree no pdf for it.
    """
    if not phone_lm.is_acceptor:
        raise ExampleError("the phone language model must be an acceptor: labels of an arc differ")
    _log("phone-LM FST is", phone_lm)
    phones = in_context(Graph.of(phone_lm), tree)
    _log("context-dependent LM FST is", phones[0])
    graph = transition_graph(phones, tree, transitions, probabilities=True)
    graph = with_pdfs(graph, transitions)
    _log("transition-id FST is", graph)
    graph = minimization.without_local_epsilons(graph)
    if not graph.num_states:
        raise ExampleError("the phone language model has no path")
    fst = machines.without_epsilons(graph.fst())
    _log("transition-id FST after removing epsilons is", fst)
    for number in range(1, _PASSES + 1):
        fst = _reversed(minimization.joined(minimization.pushed(_reversed(fst), _PUSHED), _ROUNDED))
        _log("transition-id FST after reversed minimization is", fst, f" (pass {number})")
        fst = minimization.joined(minimization.pushed(fst, _PUSHED), _ROUNDED)
        _log("transition-id FST after regular minimization is", fst, f" (pass {number})")
    fst = machines.without_epsilons(fst)
    _log("transition-id FST after removing any epsilons introduced by reversal is", fst)
    return _busiest_first(minimization.pushed(fst, _PUSHED))


def _log(what: str, fst: Fst | Graph, when: str = "") -> None:
    states, arcs = fst.num_states, fst.num_arcs
    _LOGGER.info("Number of states and arcs in %s %d and %d%s", what, states, arcs, when)


def _reversed(fst: Fst) -> Fst:
    """The FST with all arcs reversed; a new start leads to the states that were final."""
    import kaldifst  # takes a while

    return machines.fst_of(kaldifst.reverse(machines.held(fst)))


def _busiest_first(fst: Fst) -> Fst:
    """The FST with the states that have the most entering and leaving arcs first."""
    states = fst.num_states
    counts = np.bincount(fst.sources, minlength=states)
    counts += np.bincount(fst.destinations, minlength=states)
    return renumbered(fst, np.argsort(-counts, kind="stable"))


def make_normalization_fst(den_fst: Fst, num_pdfs: int) -> Fst:
    """The denominator with initial probabilities at its start, and every state final at no cost.

    Composed with the correct paths for a part of an utterance, it gives them weights.

    Args:
        den_fst: The denominator FST.
        num_pdfs: Number of pdfs.

    Returns:
        An acceptor without epsilons; the arcs of a state are sorted.

    Raises:
        ExampleError: it is not a denominator FST, or a state has no initial probability.
    """
    import kaldifst

    initial = DenominatorGraph(den_fst, num_pdfs).initial_probs
    if not (initial > 0.0).all():
        state = int(np.flatnonzero(~(initial > 0.0))[0])
        raise ExampleError(f"state {state} of the denominator FST has no initial probability")
    graph = Fst.from_arcs(
        start=den_fst.num_states,
        final_costs=np.append(np.zeros(den_fst.num_states), np.inf),
        sources=np.concatenate([den_fst.sources, np.full(den_fst.num_states, den_fst.num_states)]),
        labels=np.concatenate([den_fst.labels, np.zeros(den_fst.num_states, dtype=np.int32)]),
        costs=np.concatenate([den_fst.costs, -np.log(initial)]),
        destinations=np.concatenate([den_fst.destinations, np.arange(den_fst.num_states)]),
    )
    machine = machines.held(machines.without_epsilons(graph))
    kaldifst.arcsort(machine, "ilabel")
    return machines.fst_of(machine)
