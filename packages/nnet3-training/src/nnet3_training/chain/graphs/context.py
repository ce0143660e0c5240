"""From phones to phones in context: each arc reads a window of phones instead of a phone."""

from __future__ import annotations

import math
from collections import deque

import attrs
from nnet3_speech.hmm import ContextDependency

from nnet3_training.chain.fsts.fst import EPSILON
from nnet3_training.chain.fsts.graph import Arc, Graph

_NONE = 0
"""The phone of a window where there is none, before the first and behind the last."""
_END = -1
"""The symbol after the last phone while windows are filled."""

Window = tuple[int, ...]


@attrs.frozen(kw_only=True, eq=False)
class PhonesInContext:
    """An acceptor of phones in context.

    Attributes:
        graph: Its labels are 1 + the number of a window; 0 where the first windows are filled.
        windows: The windows of phones.
    """

    graph: Graph
    windows: list[Window]


def in_context(phones: Graph, tree: ContextDependency) -> PhonesInContext:
    """Replaces each phone of an acceptor by the window of phones that the tree asks for.

    A state of the result is a state of the acceptor with the last phones on the way to it.
    """
    width, center, right = tree.context_width, tree.central_position, tree.right_context
    source = _with_ends(phones) if right else phones
    result = Graph()
    windows: list[Window] = []
    labels: dict[Window, int] = {}
    states: dict[tuple[Window, int], int] = {}
    queue: deque[tuple[Window, int]] = deque()

    def state(history: Window, phone_state: int) -> int:
        pair = history, phone_state
        if pair not in states:
            may_end = not right or history[center] == _END
            final = source.finals[phone_state] if may_end else math.inf
            states[pair] = result.add_state(final)
            queue.append(pair)
        return states[pair]

    def label(window: Window) -> int:
        if window[center] == _NONE:
            return EPSILON
        if window not in labels:
            windows.append(window)
            labels[window] = len(windows)
        return labels[window]

    if phones.num_states:
        state((_NONE,) * (width - 1), 0)
    while queue:
        history, phone_state = pair = queue.popleft()
        for arc in source.arcs[phone_state]:
            if arc.label == EPSILON:
                destination = state(history, arc.destination)
                result.arcs[states[pair]].append(Arc(EPSILON, arc.cost, destination))
                continue
            if arc.label == _END and history[center] == _END:
                continue  # the window of the last phone is full
            if arc.label != _END and history and history[-1] == _END:
                continue
            full = (*history, arc.label)
            destination = state(full[1:], arc.destination)
            window = tuple(_NONE if phone == _END else phone for phone in full)
            result.arcs[states[pair]].append(Arc(label(window), arc.cost, destination))
    return PhonesInContext(graph=result, windows=windows)


def _with_ends(phones: Graph) -> Graph:
    """The graph with one state after all final states; a loop there reads any number of ends."""
    result = Graph([list(arcs) for arcs in phones.arcs], list(phones.finals))
    last = result.add_state(0.0)
    result.arcs[last].append(Arc(_END, 0.0, last))
    for state, cost in enumerate(phones.finals):
        if math.isfinite(cost):
            result.arcs[state].append(Arc(_END, cost, last))
    return result
