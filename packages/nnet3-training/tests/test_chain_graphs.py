"""Graphs of phones, transitions and pdfs, compared with brute force on small random graphs."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nnet3_descriptors.files import TextReader
from nnet3_speech.hmm import ContextDependency, Leaf
from nnet3_training import ChainSupervision, Fst
from nnet3_training.chain.fsts.fst import Arc, Graph
from nnet3_training.chain.fsts.machines import without_epsilons
from nnet3_training.chain.fsts.minimization import joined, pushed, without_local_epsilons
from nnet3_training.chain.graphs import (
    Normalization,
    PhoneLattice,
    PhoneLmOptions,
    ProtoSupervision,
    SupervisionOptions,
    SupervisionSplitter,
    end_to_end,
    estimate_phone_lm,
    read_phone_lattice,
)
from nnet3_training.chain.graphs.transition_graph import in_context

LONGEST = 4
FEW = settings(max_examples=2 * settings.default.max_examples // 5)


def accepted(graph: Graph, longest: int = LONGEST) -> dict[tuple[int, ...], float]:
    """The least cost of each sequence of labels up to a length, over all paths.

    Costs are not negative, so arcs without a label are followed while a path gets cheaper.
    """
    best: dict[tuple[int, tuple[int, ...]], float] = {}
    left = [(0, (), 0.0)] if graph.num_states else []
    found: dict[tuple[int, ...], float] = defaultdict(lambda: math.inf)
    while left:
        state, labels, cost = left.pop()
        if len(labels) > longest or best.get((state, labels), math.inf) <= cost + 1e-9:
            continue
        best[state, labels] = cost
        found[labels] = min(found[labels], cost + graph.finals[state])
        for arc in graph.arcs[state]:
            label = (arc.label,) if arc.label else ()
            left.append((arc.destination, (*labels, *label), cost + arc.cost))
    return {labels: cost for labels, cost in found.items() if math.isfinite(cost)}


def assert_same(found: dict[tuple[int, ...], float], wanted: dict[tuple[int, ...], float]) -> None:
    """Asserts that the sequences are equal, and their costs up to rounding."""
    assert set(found) == set(wanted)
    for labels, cost in wanted.items():
        assert found[labels] == pytest.approx(cost, abs=1e-4)


@st.composite
def graphs(draw: st.DrawFn, *, labels: int = 3, acyclic: bool = False) -> Graph:
    """A few states and any arcs, some without a label; costs are exact in single precision."""
    states = draw(st.integers(1, 5))
    graph = Graph()
    costs = st.integers(0, 8).map(lambda eighths: eighths / 8)
    for _ in range(states):
        graph.add_state(draw(st.just(math.inf) | costs))
    for state in range(states):
        first = state + 1 if acyclic else 0
        if first == states:
            continue
        destinations = st.integers(first, states - 1)
        arc = st.builds(Arc, st.integers(0, labels), costs, destinations, st.just(0))
        graph.arcs[state] = draw(st.lists(arc, max_size=3))
    return graph


@FEW
@given(graphs())
def test_trimmed_graphs_accept_the_same(graph: Graph) -> None:
    """States on no path are removed; all others can be reached, and reach an end."""
    trimmed = graph.trimmed()

    assert_same(accepted(trimmed), accepted(graph))
    for start in range(trimmed.num_states):
        seen, left = {start}, [start]
        while left:
            for arc in trimmed.arcs[left.pop()]:
                if arc.destination not in seen:
                    seen.add(arc.destination)
                    left.append(arc.destination)
        assert any(math.isfinite(trimmed.finals[state]) for state in seen)
        assert start != 0 or seen == set(range(trimmed.num_states))


@FEW
@given(graphs(acyclic=True))
def test_local_epsilons_are_removed_without_a_change(graph: Graph) -> None:
    """The same sequences have the same costs, and there are no more arcs than before."""
    result = without_local_epsilons(graph)

    assert_same(accepted(result), accepted(graph))
    assert sum(map(len, result.arcs)) <= sum(map(len, graph.arcs))


def transduced(graph: Graph) -> dict[tuple[tuple[int, ...], tuple[int, ...]], float]:
    """The least cost of each pair of sequences, read and written, of an acyclic transducer."""
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = defaultdict(lambda: math.inf)
    left = [(0, (), (), 0.0)] if graph.num_states else []
    while left:
        state, read, written, cost = left.pop()
        found[read, written] = min(found[read, written], cost + graph.finals[state])
        for arc in graph.arcs[state]:
            labels = (arc.label,) if arc.label else ()
            outputs = (arc.output,) if arc.output else ()
            total = cost + arc.cost
            left.append((arc.destination, (*read, *labels), (*written, *outputs), total))
    return {pair: cost for pair, cost in found.items() if math.isfinite(cost)}


@FEW
@given(graphs(acyclic=True), st.lists(st.sampled_from([0, 11, 12]), min_size=15, max_size=15))
def test_local_epsilons_of_transducers(graph: Graph, outputs: list[int]) -> None:
    """The same sequences are written for those that are read, at the same costs."""
    outputs_of_arcs = iter(outputs)
    graph.arcs = [
        [arc._replace(output=next(outputs_of_arcs)) for arc in arcs] for arcs in graph.arcs
    ]

    result = without_local_epsilons(Graph.of(graph.fst()))

    assert_same(transduced(result), transduced(graph))
    assert sum(map(len, result.arcs)) <= sum(map(len, graph.arcs))


WORDS = Graph(
    [
        [Arc(0, 0.5, 1, 7), Arc(4, 0.25, 3)],
        [Arc(1, 0.0, 2)],
        [Arc(1, 1.0, 2), Arc(0, 0.0, 3)],
        [Arc(0, 0.125, 4, 9)],
        [Arc(0, 0.0, 5)],
        [Arc(3, 0.0, 6)],
        [],
    ],
    [math.inf] * 6 + [0.5],
)
"""A training graph: words 7 and 9, each beside a transition-id that it can be joined with."""


def test_numerators_of_training_graphs() -> None:
    """Words are left out, transition-ids become pdfs + 1, and epsilons are removed."""
    transitions = SimpleNamespace(num_ids=4, num_pdfs=3, pdfs=np.array([-1, 2, 0, 0, 1]))

    supervision = end_to_end(WORDS.fst(), transitions, 3)

    assert (supervision.label_dim, supervision.frames_per_sequence) == (3, 3)
    [fst] = supervision.e2e_fsts
    assert fst.is_acceptor
    assert not (fst.labels == 0).any()
    assert_same(
        accepted(Graph.of(fst)),
        {(2, 1): 0.875, (3, 1): 1.125, (3, 3, 1): 2.125, (3, 3, 3, 1): 3.125},
    )


def test_arcs_side_by_side_are_kept() -> None:
    """Two arcs of one pdf, for two words, both get the weights of the normalization FST."""
    anything = Normalization(Graph([[Arc(1, 0.5, 0), Arc(2, 0.25, 0)]], [0.0]).fst())
    words = Graph([[Arc(1, 1.0, 1), Arc(1, 2.0, 1)], []], [math.inf, 0.0])

    composed = Graph.of(anything.composed(words.fst()))

    assert composed.arcs[0] == [Arc(1, 1.5, 1), Arc(1, 2.5, 1)]


def test_a_chain_of_epsilons_is_one_arc() -> None:
    """A chain with one labelled arc becomes this arc."""
    graph = Graph(
        [[Arc(0, 0.5, 1)], [Arc(7, 0.25, 2)], [Arc(0, 1.0, 3)], []], [math.inf] * 3 + [0.125]
    )

    result = without_local_epsilons(graph)

    assert sum(map(len, result.arcs)) == 1
    assert accepted(result) == {(7,): 1.875}


@FEW
@given(graphs())
def test_pushed_weights(graph: Graph) -> None:
    """Arcs and final probabilities of all states have the same sum; sequences keep their costs."""
    graph = graph.trimmed()
    fst = graph.fst()

    result = pushed(fst, 1e-5)

    if fst.num_states:
        arcs = np.bincount(result.sources, np.exp(-result.costs), minlength=fst.num_states)
        sums = arcs + np.exp(-result.final_costs)
        assert np.log(sums.max() / sums.min()) < 1e-4 or sums.min() < 0.2
    shifted = Graph.of(result)
    for labels, cost in accepted(graph).items():
        assert cheapest(shifted, labels) == pytest.approx(cost, abs=1e-3)


def cheapest(graph: Graph, labels: tuple[int, ...]) -> float:
    """The least cost of one sequence of labels; costs can be negative, but cycles cannot be 0."""
    costs = {(0, 0): 0.0}
    for _ in range(graph.num_states * (len(labels) + 1)):
        for (state, position), cost in list(costs.items()):
            for arc in graph.arcs[state]:
                if arc.label and labels[position : position + 1] != (arc.label,):
                    continue
                after = arc.destination, position + bool(arc.label)
                costs[after] = min(costs.get(after, math.inf), cost + arc.cost)
    ends = [cost + graph.finals[s] for (s, at), cost in costs.items() if at == len(labels)]
    return min(ends, default=math.inf)


def rows(graph: Graph) -> set[object]:
    """The final costs and sets of arcs of all states, once for equal states."""
    return {
        (state == 0, final, tuple(sorted(set(arcs))))
        for state, (final, arcs) in enumerate(zip(graph.finals, graph.arcs, strict=True))
    }


@FEW
@given(graphs(), st.integers(2, 3))
def test_joined_states(graph: Graph, copies: int) -> None:
    """Copies of states are merged again; sequences keep their costs."""
    graph = graph.trimmed()
    count = graph.num_states
    several = Graph()  # state s + count * c is copy c of state s
    for copy in range(copies):
        for state in range(count):
            several.add_state(graph.finals[state])
            several.arcs[-1] = [
                arc._replace(destination=arc.destination + count * ((copy + arc.label) % copies))
                for arc in graph.arcs[state]
            ]

    found = Graph.of(joined(several.fst(), 0.125))

    assert found.num_states <= count
    assert_same(accepted(found), accepted(graph))
    assert rows(Graph.of(joined(graph.fst(), 0.125))) == rows(found)
    assert rows(Graph.of(joined(found.fst(), 0.125))) == rows(found)


def test_order_keeps_states_apart() -> None:
    """States whose arcs have another order, or costs equal only after rounding, are not merged."""
    one, two = Arc(1, 0.0, 3), Arc(2, 0.25, 3)
    first = [Arc(5, 0.0, 1), Arc(6, 0.0, 2)]
    finals = [math.inf] * 3 + [0.0]

    same = joined(Graph([first, [one, two], [one, two], []], finals).fst(), 0.25)
    turned = joined(Graph([first, [one, two], [two, one], []], finals).fst(), 0.25)
    near = joined(Graph([first, [one], [one._replace(cost=0.11)], []], finals).fst(), 0.25)
    far = joined(Graph([first, [one], [one._replace(cost=0.13)], []], finals).fst(), 0.25)

    assert [same.num_states, turned.num_states] == [3, 4]
    assert [near.num_states, far.num_states] == [3, 4]
    assert far.costs.tolist()[2:] == [0.0, 0.25]


@FEW
@given(graphs())
def test_openfst_removes_epsilons(graph: Graph) -> None:
    """An FST has the same sequences after a round trip through OpenFst."""
    result = Graph.of(without_epsilons(graph.fst()))

    assert_same(accepted(result), accepted(graph))
    assert all(arc.label for arcs in result.arcs for arc in arcs)


@FEW
@given(graphs(labels=2), st.integers(1, 3), st.data())
def test_phones_in_context(graph: Graph, width: int, data: st.DataObject) -> None:
    """Each sequence of phones becomes the sequence of its windows, with the same cost."""
    graph = graph.trimmed()
    center = data.draw(st.integers(0, width - 1))
    tree = ContextDependency(context_width=width, central_position=center, to_pdf=Leaf(0))

    result, windows = in_context(graph, tree)

    found = {
        tuple(windows[label - 1] for label in labels): cost
        for labels, cost in accepted(result).items()
    }
    wanted = {}
    for phones, cost in accepted(graph).items():
        padded = (0,) * center + phones + (0,) * (width - 1 - center)
        wanted[tuple(padded[i : i + width] for i in range(len(phones)))] = cost
    assert_same(found, wanted)


# ---- phone language models ----

SEQUENCES = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=8), min_size=1, max_size=6)


@FEW
@given(SEQUENCES, st.integers(2, 4))
def test_phone_lm_without_dropping(sequences: list[list[int]], order: int) -> None:
    """The cost of a sequence is the sum of the costs of its n-grams, from relative frequencies."""
    model = estimate_phone_lm(
        sequences,
        PhoneLmOptions(ngram_order=order, no_prune_ngram_order=order, num_extra_lm_states=1000),
    )

    histories: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for sequence in sequences:
        whole = (0, *sequence, 0)
        for end in range(1, len(whole)):
            histories[whole[max(0, end - order + 1) : end]][whole[end]] += 1
    graph = Graph.of(model.fst)
    for sequence in sequences:
        whole = (0, *sequence, 0)
        cost = 0.0
        for end in range(1, len(whole)):
            counts = histories[whole[max(0, end - order + 1) : end]]
            cost -= math.log(counts[whole[end]] / counts.total())
        assert cheapest(graph, tuple(sequence)) == pytest.approx(cost, abs=1e-4)
    assert model.fst.num_states == len(histories)


@FEW
@given(SEQUENCES, st.integers(0, 4))
def test_phone_lm_with_fewer_states(sequences: list[list[int]], extra: int) -> None:
    """States are removed; seen n-grams stay possible, and the weights of a state sum to 1."""
    options = PhoneLmOptions(ngram_order=4, no_prune_ngram_order=2, num_extra_lm_states=extra)

    model = estimate_phone_lm(sequences, options)

    whole = estimate_phone_lm(sequences, PhoneLmOptions(ngram_order=4, no_prune_ngram_order=4))
    assert model.num_before == whole.fst.num_states
    assert min(model.num_before, model.num_basic + extra) <= model.fst.num_states
    assert model.fst.num_states <= model.num_before
    assert model.perplexity >= whole.perplexity - 1e-6
    fst = model.fst
    sums = np.bincount(fst.sources, np.exp(-fst.costs), minlength=fst.num_states)
    np.testing.assert_allclose(sums + np.exp(-fst.final_costs), 1.0, atol=1e-5)
    pairs = list(zip(fst.sources.tolist(), fst.labels.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    for sequence in sequences:
        assert math.isfinite(cheapest(Graph.of(fst), tuple(sequence)))


def test_phone_lm_drops_most_states() -> None:
    """Without extra states, few states remain beside those of bigrams.

    These are the states that longer histories need until the last stage of pruning.
    """
    rng = np.random.default_rng(0)
    sequences = rng.integers(1, 6, size=(40, 12)).tolist()
    options = PhoneLmOptions(ngram_order=4, no_prune_ngram_order=2, num_extra_lm_states=0)

    model = estimate_phone_lm(sequences, options)

    assert model.num_before > 100
    assert model.num_basic == 6
    assert 6 <= model.fst.num_states < 20


# ---- supervisions ----


@FEW
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_allowed_phones(
    alignment: list[tuple[int, int]], factor: int, left: int, right: int
) -> None:
    """A phone is possible in an output frame that lies within the phone's tolerances."""
    if factor > left + right + 1:
        return
    options = SupervisionOptions(
        left_tolerance=left, right_tolerance=right, frame_subsampling_factor=factor
    )

    proto = ProtoSupervision.from_alignment(alignment, options)

    ends = list(itertools.accumulate(duration for _, duration in alignment))
    allowed = [
        {
            phone
            for (phone, duration), end in zip(alignment, ends, strict=True)
            if end - duration - left <= time < end + right
        }
        for time in range(0, ends[-1], factor)
    ]
    assert proto.allowed_phones == tuple(map(frozenset, allowed))


def lattice(rng: np.random.Generator, frames: int) -> Fst:
    """An acceptor of `frames` labels, with two states between two frames."""
    graph = Graph()
    layer = [graph.add_state()]
    for frame in range(frames):
        last = frame == frames - 1
        following = [graph.add_state(0.0 if last else math.inf) for _ in range(2 - last)]
        for state in layer:
            for destination in following:
                for label in rng.choice(3, size=2, replace=False) + 1:
                    graph.arcs[state].append(Arc(int(label), 0.0, destination))
        layer = following
    return graph.fst()


@FEW
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_parts_of_supervisions(seed: int, frames: int) -> None:
    """A part accepts the labels between its frames on paths of the whole."""
    rng = np.random.default_rng(seed)
    fst = lattice(rng, 5)
    whole = ChainSupervision(frames_per_sequence=5, label_dim=3, fst=fst)
    first = int(rng.integers(0, 6 - frames))

    part = SupervisionSplitter(whole).part(first, frames)

    assert part.frames_per_sequence == frames
    wanted = {labels[first : first + frames] for labels in accepted(Graph.of(fst), 5)}
    assert set(accepted(Graph.of(part.fst), 5)) == wanted


@FEW
@given(st.integers(0, 2**32 - 1))
def test_normalized_supervisions(seed: int) -> None:
    """Sequences of the normalization FST get its costs; others are removed."""
    rng = np.random.default_rng(seed)
    fst = lattice(rng, 3)
    supervision = ChainSupervision(frames_per_sequence=3, label_dim=3, fst=fst)
    normalization = Graph([[], []], [0.25, 0.5])
    for state in (0, 1):
        for label in (1, 2, 3):
            if rng.random() < 0.7:
                cost = float(rng.integers(8)) / 8
                normalization.arcs[state].append(Arc(label, cost, int(rng.integers(2))))

    found = Normalization(normalization.fst(), scale=2.0).added(supervision)

    costs = accepted(normalization)
    wanted = {labels: 2 * costs[labels] for labels in accepted(Graph.of(fst)) if labels in costs}
    if found is None:
        assert not wanted
    else:
        assert_same({k: cheapest(Graph.of(found.fst), k) for k in wanted}, wanted)
        pairs = list(zip(found.fst.sources.tolist(), found.fst.labels.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs)


def test_a_path_of_vast_cost() -> None:
    """A damaged cost whose sum is beyond float32 leaves no path, which is not an error."""
    graph = Graph([[Arc(1, 3e38, 1)], [Arc(1, 3e38, 2)], []], [math.inf, math.inf, 0.0])
    paths = Graph([[Arc(1, 6.6e35, 1)], [Arc(1, 3e38, 2)], []], [math.inf, math.inf, 0.0])
    known = ChainSupervision(frames_per_sequence=2, label_dim=3, fst=paths.fst())

    assert Normalization(graph.fst()).added(known) is None


# ---- lattices ----


def parsed(text: str) -> PhoneLattice:
    """The lattice of a text."""
    return read_phone_lattice(TextReader(memoryview(text.encode()), "lattice"))


@FEW
@given(graphs(acyclic=True), st.sampled_from([0.25, 0.5]))
def test_costs_of_lattices(graph: Graph, scale: float) -> None:
    """Costs are scaled, relative to the best path; a scale of 0 removes them."""
    lengths = [[1] * len(arcs) for arcs in graph.arcs]
    known = PhoneLattice(graph=graph, lengths=lengths, final_lengths=[0] * graph.num_states)

    found = accepted(known.with_scaled_costs(scale))

    costs = accepted(graph)
    best = min(costs.values(), default=0.0)
    assert_same(found, {labels: (cost - best) * scale for labels, cost in costs.items()})
    assert set(accepted(known.with_scaled_costs(0.0)).values()) <= {0.0}


def test_a_lattice() -> None:
    """Phones are possible near the frames of their arcs, on the paths of the lattice."""
    text = "\n0 1 7 0.5,3,1_1\n0 1 8 1.5,3,2_2\n1 2 9 0,0,3_3_3\n2 0.25,0,\n\n"
    options = SupervisionOptions(left_tolerance=0, right_tolerance=1, lm_scale=0.5)

    found = ProtoSupervision.from_lattice(parsed(text), options)

    assert found.allowed_phones == ({7, 8}, {7, 8}, {7, 8, 9}, {9}, {9})
    assert accepted(found.phones) == {(7, 9): 0.0, (8, 9): 0.5}
