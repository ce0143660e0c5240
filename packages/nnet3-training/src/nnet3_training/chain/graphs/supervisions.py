"""Supervisions of utterances made into those of examples: parts, weights, freedom of times.

The paths of a part get the weights that they have in the denominator. Or it loses its times ("end
to end"): only the order of transitions stays, which may take any time. Such supervisions are made
of the training graph of an utterance; or of a part of a supervision with times, whose paths read a
label in each frame. Without self-loops these give the order of the transitions; loops at the states
then allow any duration. The part may begin inside a phone, so a self-loop at the beginning stays.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs
import numpy as np
from nnet3_speech.hmm import Transitions

from nnet3_training.chain.fsts import machines, minimization
from nnet3_training.chain.fsts.fst import EPSILON, Fst, Graph, breadth_first
from nnet3_training.chain.graphs.transition_graph import with_pdfs, with_self_loops
from nnet3_training.chain.supervision import ChainSupervision, state_times
from nnet3_training.egs.chunks import Random
from nnet3_training.errors import ExampleError

if TYPE_CHECKING:
    from kaldifst import StdVectorFst

_MAX_STATES = 200_000
"""A supervision with more states than this is not made deterministic, as in Kaldi."""


class Normalization:
    """The normalization FST, with which supervisions are composed."""

    def __init__(self, fst: Fst, scale: float = 1.0) -> None:
        """Takes an FST, such as `make_normalization_fst` makes.

        Args:
            fst: An acceptor without epsilons; labels are 1 + the number of a pdf.
            scale: Multiplies its costs.

        Raises:
            ExampleError: the FST is no such acceptor, or the scale is negative or not finite.
        """
        import kaldifst  # takes a while

        if not (math.isfinite(scale) and scale >= 0.0):
            raise ExampleError(
                f"the scale of the normalization FST must be at least 0 (got {scale:g})"
            )
        if not fst.is_acceptor or not fst.num_states or bool((fst.labels == 0).any()):
            raise ExampleError("the normalization FST must be an acceptor without epsilons")
        with np.errstate(invalid="ignore"):
            finals = np.where(np.isfinite(fst.final_costs), fst.final_costs * scale, np.inf)
        self._machine = machines.held(
            attrs.evolve(fst, costs=fst.costs * scale, final_costs=finals)
        )
        kaldifst.arcsort(self._machine, "ilabel")

    def composed(self, fst: Fst) -> Fst:
        """The paths of an acceptor that are in the normalization FST, with the costs of both.

        Args:
            fst: An acceptor without epsilons.

        Returns:
            Such an acceptor; without states if there is no such path.
        """
        return machines.fst_of(machines.composed(machines.held(fst), self._machine))

    def added(self, supervision: ChainSupervision) -> ChainSupervision | None:
        """The supervision with the costs that its paths have in the normalization FST.

        Its FST is deterministic and minimal; "end to end" supervisions keep their loops.

        Args:
            supervision: Of one sequence.

        Returns:
            None if no path with a cost within float32 is in the normalization FST, or there are too
            many states.

        Raises:
            ExampleError: the supervision has several sequences.
        """
        if supervision.num_sequences != 1:
            raise ExampleError(
                f"costs are added to supervisions of one sequence, found "
                f"{supervision.num_sequences}: too late"
            )
        import kaldifst

        [fst] = supervision.fsts
        machine = machines.held(fst)
        kaldifst.rmepsilon(machine)
        small = machine if supervision.fst is None else _made_small(machine)
        if small is None:
            return None
        both = machines.composed(small, self._machine)
        if not both.num_states:
            return None
        if supervision.fst is None:
            return attrs.evolve(supervision, e2e_fsts=[machines.fst_of(both)])
        # Added costs can exceed float32; such a path is dropped.
        found = _made_small(both)
        if found is None or not found.num_states:
            return None
        return attrs.evolve(supervision, fst=breadth_first(machines.fst_of(found)))


def _made_small(machine: StdVectorFst) -> StdVectorFst | None:
    """The deterministic and minimal machine of the same paths; None if it is too large for that."""
    import kaldifst

    if machine.num_states >= _MAX_STATES:
        return None
    made = kaldifst.determinize(machine, nstate=_MAX_STATES)
    if made.num_states >= _MAX_STATES - 1:
        return None
    kaldifst.minimize(made)
    return made


class SupervisionSplitter:
    """Gives parts of a supervision."""

    def __init__(self, supervision: ChainSupervision) -> None:
        """Takes a supervision.

        Args:
            supervision: Of one sequence, with an FST without epsilons.

        Raises:
            ExampleError: it is no such supervision.
        """
        if supervision.fst is None or supervision.num_sequences != 1:
            raise ExampleError("only the supervision of one sequence with times can be split")
        self._supervision, self._fst = supervision, supervision.fst
        self._times = state_times(self._fst)
        if int(self._times[-1]) != supervision.frames_per_sequence:
            raise ExampleError(
                f"the FST of a supervision of {supervision.frames_per_sequence} frames has paths "
                f"of {self._times[-1]}"
            )

    def part(self, first_frame: int, num_frames: int) -> ChainSupervision:
        """The supervision of some frames.

        Args:
            first_frame: The first of them.
            num_frames: Number of frames.

        Returns:
            A supervision whose FST begins with arcs that read nothing, which
            `Normalization.added` removes.

        Raises:
            ExampleError: some of these frames do not exist.
        """
        fst, times = self._fst, self._times
        if not 0 <= first_frame < first_frame + num_frames <= self._supervision.frames_per_sequence:
            raise ExampleError(
                f"expected frames of 0 to {self._supervision.frames_per_sequence - 1}, found "
                f"{first_frame} to {first_frame + num_frames - 1}"
            )
        begin, end = np.searchsorted(times, [first_frame, first_frame + num_frames]).tolist()
        first = np.flatnonzero(times[begin:end] == first_frame)
        arcs = slice(int(fst.splits[begin]), int(fst.splits[end]))
        last = end - begin + 1
        finals = np.full(last + 1, np.inf, dtype=np.float32)
        finals[last] = 0.0
        zeros = np.zeros(len(first), dtype=np.int32)
        part = Fst.from_arcs(
            start=0,
            final_costs=finals,
            sources=np.concatenate([zeros, fst.sources[arcs] - begin + 1]),
            labels=np.concatenate([zeros, fst.labels[arcs]]),
            costs=np.concatenate([zeros.astype(np.float32), fst.costs[arcs]]),
            destinations=np.concatenate(
                [first + 1, np.minimum(fst.destinations[arcs], end) - begin + 1]
            ),
        )
        return attrs.evolve(
            self._supervision,
            frames_per_sequence=num_frames,
            fst=part,
            alignment_pdfs=(),
            deriv_weights=(),
        )


_LARGEST = 1e30
"""OpenFst counts costs in steps of 1e-6, and these counts must be numbers of float32, too."""


def end_to_end(graph: Fst, transitions: Transitions, num_frames: int) -> ChainSupervision:
    """The supervision of a whole utterance, from its training graph.

    Args:
        graph: A transducer from transition-ids to words, as compile-train-graphs makes it.
        transitions: The transition model.
        num_frames: Output frames.

    Raises:
        ExampleError: see `numerator_fst`; or the graph has no path, or none so short.
    """
    fst = numerator_fst(graph, transitions)
    shortest = _shortest_path(fst)
    if shortest is None:
        raise ExampleError("the training graph has no path")
    if shortest > num_frames:
        raise ExampleError(
            "there are too many phones for too few frames; Number of subsampled frames: "
            f"{num_frames}, Minimum number of frames required by the fst: {shortest}"
        )
    return ChainSupervision(
        frames_per_sequence=num_frames, label_dim=transitions.num_pdfs, e2e_fsts=[fst]
    )


def numerator_fst(graph: Fst, transitions: Transitions) -> Fst:
    """The acceptor of the pdfs of a training graph.

    Args:
        graph: A transducer from transition-ids to words.
        transitions: The transition model.

    Returns:
        An acceptor without epsilons, whose labels are 1 + the number of a pdf.

    Raises:
        ExampleError: a label is no transition-id, or an arc writes a word and reads nothing, and
            cannot be joined with one that reads.
    """
    largest = int(graph.labels.max(initial=0))
    if largest > transitions.num_ids:
        raise ExampleError(
            f"the training graph reads the label {largest}; expected at most "
            f"{transitions.num_ids}, the number of transition-ids"
        )
    joined = minimization.without_local_epsilons(Graph.of(graph)).fst()
    fst = machines.without_epsilons(joined)
    if bool((fst.labels == EPSILON).any()):
        word = int(fst.output_labels[fst.labels == EPSILON][0])
        raise ExampleError(
            f"the training graph has an arc that writes the word {word} and reads no transition-id"
        )
    return with_pdfs(Graph.of(fst), transitions).fst()


def _shortest_path(fst: Fst) -> int | None:
    """The number of arcs of the shortest path; None if there is none.

    As in Kaldi, an arc costs 1, and final costs count.
    """
    graph = Graph.of(fst)
    distances = {0: 0} if graph.num_states else {}
    left = list(distances)
    for state in left:  # which grows
        for arc in graph.arcs[state]:
            if arc.destination not in distances:
                distances[arc.destination] = distances[state] + 1
                left.append(arc.destination)
    ends = [state for state in left if math.isfinite(graph.finals[state])]
    best = min(ends, key=lambda state: distances[state] + graph.finals[state], default=None)
    return None if best is None else distances[best]


def unconstrained(
    supervision: ChainSupervision, transitions: Transitions, rng: Random
) -> ChainSupervision | None:
    """A supervision that may read its transitions at any time ("end to end").

    Args:
        supervision: Of one sequence, with times, and transition-ids as labels; such as
            `SupervisionSplitter.part` gives.
        transitions: The transition model.
        rng: Draws the path that gives `alignment_pdfs`.

    Returns:
        The supervision; its labels are 1 + the number of a pdf. None if there is no path.

    Raises:
        ExampleError: it is no such supervision, or has too many states.
    """
    if supervision.fst is None or supervision.num_sequences != 1:
        raise ExampleError("expected the supervision of one sequence with times")
    if supervision.label_dim != transitions.num_ids:
        raise ExampleError(
            f"expected a supervision of {transitions.num_ids} transition-ids, as the transition "
            f"model has (chain-get-supervision --convert-to-pdfs=false), found "
            f"{supervision.label_dim} labels"
        )
    _check_costs(supervision.fst)
    timed = breadth_first(machines.without_epsilons(supervision.fst))
    if not timed.num_states:
        return None
    if state_times(timed)[-1] != supervision.frames_per_sequence:
        raise ExampleError(
            f"the FST of a supervision of {supervision.frames_per_sequence} frames has paths of "
            f"{state_times(timed)[-1]}"
        )
    order = _small(_without_self_loops(Graph.of(timed), transitions))
    if order is None:
        return None
    looped = _small(with_pdfs(with_self_loops(Graph.of(order), transitions, 0.0), transitions))
    if looped is None:
        return None
    return attrs.evolve(
        supervision,
        label_dim=transitions.num_pdfs,
        fst=None,
        e2e_fsts=[looped],
        alignment_pdfs=transitions.pdfs[_drawn_path(Graph.of(timed), rng)],
    )


def _check_costs(fst: Fst) -> None:
    """Refuses costs so large that OpenFst would make states without end."""
    finals = fst.final_costs[np.isfinite(fst.final_costs)]
    total = np.abs(np.concatenate([fst.costs, finals]), dtype=np.float64).sum()
    if not total < _LARGEST:
        raise ExampleError(
            f"the costs of the FST of a supervision add up to {total:.2g}; expected less than "
            f"{_LARGEST:.2g}"
        )


def _without_self_loops(graph: Graph, transitions: Transitions) -> Graph:
    """The graph with self-loops that read nothing, except at the start, which no arc enters."""
    loops = set(transitions.self_loops.tolist()) - {0}
    rest = [
        [arc._replace(label=EPSILON) if arc.label in loops else arc for arc in arcs]
        for arcs in graph.arcs[1:]
    ]
    return Graph([graph.arcs[0], *rest], graph.finals)


def _small(graph: Graph) -> Fst | None:
    """The smallest deterministic acceptor of the same paths; None if it has none.

    Determinization ends in spite of loops, because these cost nothing. That of `_made_small` rounds
    the costs that it carries along a path; this one does not.

    Raises:
        ExampleError: it has too many states.
    """
    import kaldifst

    machine = machines.held(graph.fst())
    try:
        kaldifst.determinize_star(machine, max_states=_MAX_STATES)
    except RuntimeError as error:
        raise ExampleError(f"a deterministic FST has more than {_MAX_STATES} states") from error
    kaldifst.minimize(machine)
    return machines.fst_of(machine) if machine.num_states else None


def _drawn_path(graph: Graph, rng: Random) -> list[int]:
    """The labels of a random path; at each state, all arcs are equally likely.

    As in Kaldi, these draws have a generator of their own, here the one for permutations.
    """
    labels, state = [], 0
    while arcs := graph.arcs[state]:
        arc = arcs[int(rng.permutation(len(arcs))[0])]
        labels.append(arc.label)
        state = arc.destination
    return labels
