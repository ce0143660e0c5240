"""The denominator FST: a tree, a transition model and a phone language model as one acceptor.

As in Povey et al., "Purely sequence-trained neural networks for ASR based on lattice-free MMI"
(Interspeech 2016), section 2.3: costs are pushed, then states are joined from both sides.
"""

from __future__ import annotations

import logging

import numpy as np
from nnet3_speech.hmm import ContextDependency, Transitions

from nnet3_training.chain.denominator import DenominatorGraph
from nnet3_training.chain.fsts.fst import Fst
from nnet3_training.chain.fsts.graph import Graph
from nnet3_training.chain.fsts.joining import joined
from nnet3_training.chain.fsts.local_epsilons import without_local_epsilons
from nnet3_training.chain.fsts.machines import Machine
from nnet3_training.chain.fsts.operations import renumbered
from nnet3_training.chain.fsts.pushing import pushed
from nnet3_training.chain.graphs.context import in_context
from nnet3_training.chain.graphs.transition_graph import transition_graph, with_pdfs
from nnet3_training.errors import ExampleError

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
    _log("phone-LM FST is", phone_lm.num_states, phone_lm.num_arcs)
    phones = in_context(Graph.of(phone_lm), tree)
    _log("context-dependent LM FST is", phones.graph.num_states, phones.graph.num_arcs)
    graph = transition_graph(phones, tree, transitions, probabilities=True)
    graph = with_pdfs(graph, transitions)
    _log("transition-id FST is", graph.num_states, graph.num_arcs)
    graph = without_local_epsilons(graph)
    if not graph.num_states:
        raise ExampleError("the phone language model has no path")
    fst = Machine.of(graph.fst()).without_epsilons().fst()
    _log("transition-id FST after removing epsilons is", fst.num_states, fst.num_arcs)
    for number in range(1, _PASSES + 1):
        fst = _reversed(joined(pushed(_reversed(fst), _PUSHED), _ROUNDED))
        what = "transition-id FST after reversed minimization is"
        _log(what, fst.num_states, fst.num_arcs, f" (pass {number})")
        fst = joined(pushed(fst, _PUSHED), _ROUNDED)
        what = "transition-id FST after regular minimization is"
        _log(what, fst.num_states, fst.num_arcs, f" (pass {number})")
    fst = Machine.of(fst).without_epsilons().fst()
    _log(
        "transition-id FST after removing any epsilons introduced by reversal is",
        *(fst.num_states, fst.num_arcs),
    )
    return _busiest_first(pushed(fst, _PUSHED))


def _log(what: str, states: int, arcs: int, when: str = "") -> None:
    _LOGGER.info("Number of states and arcs in %s %d and %d%s", what, states, arcs, when)


def _reversed(fst: Fst) -> Fst:
    return Machine.of(fst).reversed().fst()


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
    return Machine.of(graph).without_epsilons().sorted().fst()
