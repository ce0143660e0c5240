"""The phone language model of the denominator: n-grams without rare histories.

The model has no smoothing: a phone that never followed a history has no arc there, so the graph
stays small. When a history's state is dropped, its counts go to the history without its first
phone, and arcs to the dropped state lead there. (Kaldi's LanguageModelEstimator does the same.)
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from nnet3_training import errors, fields
from nnet3_training.chain.fsts.fst import Arc, Fst, Graph

_BOUNDARY = 0
"""The phone before the first one, which also ends a sequence."""
_STAGES = 4
"""Number of stages of dropping states; each begins by computing all changes."""
_NO_CHANGE = -1e-15
"""The change in log-likelihood for each count that moves to a state without counts."""
_EQUAL = 0.001
"""Changes in log-likelihood are the same if they differ by this share of them."""

History = tuple[int, ...]


@attrs.frozen(kw_only=True)
class PhoneLmOptions:
    """The size of a phone language model; names and defaults are those of chain-est-phone-lm.

    Attributes:
        ngram_order: Longest n-gram.
        num_extra_lm_states: Largest number of states besides those of `no_prune_ngram_order`.
        no_prune_ngram_order: The model keeps all n-grams of this order.

    Raises:
        ExampleError: the orders contradict each other.
    """

    ngram_order: int = fields.integer(errors.ExampleError, 4, least=2)
    num_extra_lm_states: int = fields.integer(errors.ExampleError, 1000, least=0)
    no_prune_ngram_order: int = fields.integer(errors.ExampleError, 3, least=1)

    def __attrs_post_init__(self) -> None:
        if self.no_prune_ngram_order > self.ngram_order:
            raise errors.ExampleError(
                f"no_prune_ngram_order must be 1 to {self.ngram_order}, the order (got "
                f"{self.no_prune_ngram_order})"
            )


@attrs.frozen(kw_only=True, eq=False)
class PhoneLm:
    """A phone language model with figures about it.

    Attributes:
        fst: A deterministic acceptor without epsilons; labels are phones.
        num_basic: Number of states that cannot be dropped.
        num_before: Number of states before any were dropped.
        num_phones: Number of counted phones, including ends of sequences.
        perplexity: Perplexity on the training sequences.
    """

    fst: Fst
    num_basic: int
    num_before: int
    num_phones: int
    perplexity: float


def estimate_phone_lm(
    sequences: Iterable[Sequence[int]], options: PhoneLmOptions | None = None
) -> PhoneLm:
    """Estimates a phone language model from phone sequences.

    Args:
        sequences: Phones, from 1 on, of each utterance.
        options: The size of the model.

    Raises:
        ExampleError: there are no sequences, or a phone is below 1.
    """
    estimator = _Estimator(options or PhoneLmOptions())
    for sequence in sequences:
        estimator.count(sequence)
    if not estimator.states:
        raise errors.ExampleError("there are no phone sequences to estimate a language model from")
    before = estimator.num_active
    estimator.drop()
    graph, start, counted, log_prob = estimator.graph()
    return PhoneLm(
        fst=attrs.evolve(graph.fst(), start=start),
        num_basic=estimator.num_basic,
        num_before=before,
        num_phones=counted,
        perplexity=math.exp(-log_prob / counted),
    )


@attrs.define(eq=False)
class _State:
    """A history with the counts of the phones after it.

    Attributes:
        history: The phones before.
        backoff: Number of the state of the history without its first phone; -1 if this state cannot
            be dropped.
        counts: How often each phone followed.
        total: Their sum.
        total_with_parents: The sum of these counts and those of longer histories that end in this
            one.
        may_go: Whether the state may be dropped.
    """

    history: History
    backoff: int = -1
    counts: Counter[int] = attrs.field(factory=Counter)
    total: int = 0
    total_with_parents: int = 0
    may_go: bool = False


def _log_likelihood(counts: Counter[int]) -> np.float32:
    total = counts.total()
    terms = (math.log(count / total) * count for _, count in sorted(counts.items()))
    return np.float32(sum(terms))


class _Estimator:
    """States by history; counted, then some of them dropped."""

    def __init__(self, options: PhoneLmOptions) -> None:
        self._options = options
        self.states: list[_State] = []
        self._by_history: dict[History, int] = {}
        self._queue: list[tuple[float, int]] = []
        self.num_active = 0

    @property
    def num_basic(self) -> int:
        """The number of states that cannot be dropped."""
        length = self._options.no_prune_ngram_order - 1
        return sum(len(state.history) == length for state in self.states)

    def count(self, sequence: Sequence[int]) -> None:
        history: History = (_BOUNDARY,)
        for phone in sequence:
            if phone < 1:
                raise errors.ExampleError(f"phones of a sequence must be at least 1 (got {phone})")
            self._increment(history, phone)
            history = (*history, phone)[-(self._options.ngram_order - 1) :]
        self._increment(history, _BOUNDARY)

    def _increment(self, history: History, phone: int) -> None:
        state = self.states[self._found_or_made(history)]
        self.num_active += not state.total
        state.counts[phone] += 1
        state.total += 1

    def _found_or_made(self, history: History) -> int:
        number = self._by_history.get(history)
        if number is None:
            number = self._by_history[history] = len(self.states)
            self.states.append(_State(history))
            if len(history) >= self._options.no_prune_ngram_order:
                self.states[number].backoff = self._found_or_made(history[1:])
        return number

    def drop(self) -> None:
        """Drops states to the wanted number, those first that change the likelihood least."""
        for state in self.states:
            each: int = self._by_history[state.history]
            while each >= 0:
                self.states[each].total_with_parents += state.total
                each = self.states[each].backoff
        first = self.num_active
        change = self.num_basic + self._options.num_extra_lm_states - first
        for stage in range(1, _STAGES + 1):
            self._fill_queue()
            target = first + int(change * stage / _STAGES)  # rounded towards 0
            while self.num_active > target and self._queue:
                stored, number = heapq.heappop(self._queue)
                stored, number = -stored, -number
                now = self._change(number)
                if abs(stored - now) <= _EQUAL * (abs(stored) + abs(now)):
                    self._drop(number)
                else:  # counts have changed since
                    self._push(now, number)

    def _push(self, change: float, number: int) -> None:
        heapq.heappush(self._queue, (-change, -number))

    def _fill_queue(self) -> None:
        self._queue = []
        for number, state in enumerate(self.states):
            state.may_go = self._may_go(state)
            if state.may_go:
                self._push(self._change(number), number)

    def _may_go(self, state: _State) -> bool:
        options = self._options
        if len(state.history) < options.no_prune_ngram_order or not state.total:
            return False
        if state.total != state.total_with_parents:
            return False
        if len(state.history) == options.ngram_order - 1:
            return True
        # Longer histories may need this one as their backoff.
        for phone in state.counts:
            longer = self._by_history.get((*state.history, phone)) if phone else None
            if longer is not None and self.states[longer].total_with_parents:
                return False
        return True

    def _change(self, number: int) -> float:
        """The change in log-likelihood if a state is dropped."""
        state = self.states[number]
        backoff = self.states[state.backoff]
        if not backoff.total:
            return float(np.float32(_NO_CHANGE * state.total))
        both = _log_likelihood(state.counts + backoff.counts)
        change = both - _log_likelihood(state.counts) - _log_likelihood(backoff.counts)
        return min(float(change), 0.0)

    def _drop(self, number: int) -> None:
        state = self.states[number]
        backoff = self.states[state.backoff]
        was_queued = backoff.may_go
        self.num_active -= backoff.total != 0
        backoff.counts += state.counts
        backoff.total += state.total
        state.counts = Counter()
        state.total = state.total_with_parents = 0
        state.may_go = False
        backoff.may_go = self._may_go(backoff)
        if backoff.may_go and not was_queued:
            self._push(self._change(state.backoff), state.backoff)

    def _nearest(self, history: History) -> int:
        """The state of a history, or of its longest suffix that has a state."""
        while True:
            number = self._by_history.get(history)
            if number is not None and self.states[number].total:
                return number
            history = history[1:]

    def graph(self) -> tuple[Graph, int, int, float]:
        """The acceptor, its start, how many phones were counted, and their log-probability."""
        graph = Graph()
        active = [number for number, state in enumerate(self.states) if state.total]
        place = {number: graph.add_state() for number in active}
        counted, total = 0, 0.0
        for number in active:
            state = self.states[number]
            for phone, count in sorted(state.counts.items()):
                log_prob = float(np.float32(math.log(count / state.total)))
                counted += count
                total += log_prob * count
                if phone == _BOUNDARY:
                    graph.finals[place[number]] = -log_prob
                else:
                    destination = place[self._nearest((*state.history, phone))]
                    graph.arcs[place[number]].append(Arc(phone, -log_prob, destination))
        return graph, place[self._nearest((_BOUNDARY,))], counted, total
