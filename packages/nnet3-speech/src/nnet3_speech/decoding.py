"""Words from the outputs of a network, by a decoding graph and the decoders of kaldi-decoder.

A graph is one file: HCLG.fst, a transducer from transition-ids to words, of OpenFst's type "vector"
or "const". Vosk's small models have it in two parts, HCLr.fst and Gr.fst, which have to be composed
while decoding; kaldi-decoder cannot do that.
"""

from __future__ import annotations

import heapq
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from nnet3_speech.decoding_graph import check_graph, graph_type, read_graph
from nnet3_speech.errors import SpeechError
from nnet3_speech.folders import ModelFolder
from nnet3_speech.hmm import Transitions, read_transitions, topology_of
from nnet3_speech.phones import read_symbols
from nnet3_speech.values import expect_count, expect_positive, numbers

if TYPE_CHECKING:
    import kaldi_decoder
    import kaldifst

_MOST_HYPOTHESES = 1000
_FRAMES = 1000
"""Frames whose scores are laid out by transition-id at a time."""

_MOST_STATES = 2**31 - 1
_FINAL = -1
"""Where the final states of a lattice lead."""

_Arc = tuple[int, int, float, float]
"""A transition-id and a word, or 0 where there is none, and two costs: graph and acoustic."""

_STARTS, _ENDS = ("begin", "singleton"), ("end", "singleton")


@attrs.frozen
class Word:
    """A word in a recording.

    Attributes:
        text: The word.
        start: Its first moment, in seconds.
        end: The moment after it, in seconds.
    """

    text: str
    start: float
    end: float


@attrs.frozen
class Hypothesis:
    """The words of a path through the graph.

    Attributes:
        words: The words, in order.
        graph_cost: Minus the log-probability of the path in the graph.
        acoustic_cost: Minus the sum of the scores of its frames.
        is_final: Whether the path ends in a final state of the graph.
    """

    words: tuple[Word, ...]
    graph_cost: float
    acoustic_cost: float
    is_final: bool = True

    @property
    def text(self) -> str:
        """The words, with spaces between them."""
        return " ".join(word.text for word in self.words)


class WordDecoder:
    """Finds the words of recordings with the graph of a model's folder."""

    def __init__(
        self,
        graph: Any,
        words: Mapping[int, str],
        transitions: Transitions,
        *,
        boundaries: Mapping[int, str] | None = None,
        beam: float = 16.0,
        max_active: int = _MOST_STATES,
        min_active: int = 200,
        lattice_beam: float = 10.0,
    ) -> None:
        """Takes a graph and what its labels mean.

        Args:
            graph: A `kaldifst.StdFst` from transition-ids to words, or the path of its file.
            words: The name of each word.
            transitions: What the transition-ids mean.
            boundaries: "begin", "internal", "end", "singleton" or "nonword" for each phone, if
                phones depend on their place in a word. Words then have the times of their phones;
                else those at which they leave the graph, which may be early or late.
            beam: The largest difference to the best path.
            max_active: The most states at a time; n-best search has no such limit.
            min_active: The least states at a time, as far as there are so many; at most
                `max_active`.
            lattice_beam: The largest difference of paths among the n best.

        Raises:
            SpeechError: a beam or a number of states is out of range; or see `read_graph`.
        """
        expect_positive(beam, "beam")
        expect_positive(lattice_beam, "lattice_beam")
        expect_count(min_active, "min_active", 0)
        least = max(2, min_active)
        expect_count(max_active, f"max_active, with min_active={min_active}", least)
        if isinstance(graph, str | os.PathLike):
            graph = read_graph(graph, transitions.num_ids)
        else:
            check_graph(graph, transitions.num_ids)
        self._graph = graph
        self._words = words
        self._boundaries = boundaries or {}
        self._pdfs = transitions.pdfs[1:]
        self._num_pdfs = transitions.num_pdfs
        self._phones = transitions.phones
        self._ends, self._loops = _phone_ends(transitions)
        self._beams = beam, lattice_beam
        most = min(max_active, _MOST_STATES)
        self._active = most, min(min_active, most - 1)  # which the decoder wants below

    def __repr__(self) -> str:
        return f"<WordDecoder: {len(self._words)} words, {self._num_pdfs} columns>"

    @classmethod
    def of(cls, folder: ModelFolder) -> WordDecoder:
        """The decoder of a folder, with the beams of its options.

        Raises:
            SpeechError: kaldi-decoder is not installed; or the folder has no graph of one file, or
                no words.txt or final.mdl; or the graph cannot be read, or has inputs that are no
                transition-ids of final.mdl.
            ModelFileError: final.mdl cannot be read.
        """
        if "HCLG.fst" not in folder.files and "HCLr.fst" in folder.files:
            parts = [folder.files[name] for name in ("HCLr.fst", "Gr.fst") if name in folder.files]
            kinds = " and ".join(f"{path.name} ({graph_type(path)})" for path in parts)
            raise SpeechError(
                f"{folder.path} has its graph in two parts, {kinds}, which kaldi-decoder cannot "
                "compose while it decodes; expected graph/HCLG.fst. Phones need no graph"
            )
        options = folder.options
        boundary = folder.files.get("word_boundary.int")
        words = read_symbols(folder.file("words.txt"))
        transitions = read_transitions(folder.file("final.mdl"))
        return cls(
            folder.file("HCLG.fst"),
            words,
            transitions,
            boundaries=None if boundary is None else _read_boundaries(boundary),
            beam=options.beam,
            max_active=options.max_active,
            min_active=options.min_active,
            lattice_beam=options.lattice_beam,
        )

    def decode(
        self, scores: npt.ArrayLike, frame_seconds: float, *, nbest: int = 1
    ) -> list[Hypothesis]:
        """The most probable words.

        Args:
            scores: (rows, pdfs), outputs of the network, scaled.
            frame_seconds: Seconds from one row to the next.
            nbest: The most hypotheses, of which there are 1000 at most; with more than one, whole
                lattices are searched, which takes more time and memory.

        Returns:
            Hypotheses of different words, the best first; none if no path fits all rows.

        Raises:
            SpeechError: the scores have another number of columns than the model has pdfs, or are
                not finite; or another number is out of range.
        """
        import kaldi_decoder

        what = f"scores of {self._num_pdfs} pdfs"
        rows = numbers(scores, what, ("rows", self._num_pdfs), dtype=np.float32)
        expect_positive(frame_seconds, "frame_seconds")
        expect_count(nbest, "nbest")
        if not len(rows):
            return []
        beam, lattice_beam = self._beams
        if nbest == 1:
            most, least = self._active
            options = kaldi_decoder.FasterDecoderOptions(beam, most, least)
            found = self._best(kaldi_decoder.FasterDecoder(self._graph, options), rows)
        else:
            wide = kaldi_decoder.LatticeSimpleDecoderConfig(beam, lattice_beam)
            decoder = kaldi_decoder.LatticeSimpleDecoder(self._graph, wide)
            found = self._lattice(decoder, rows)
        if found is None:
            return []
        lattice, is_final = found
        paths = self._paths(lattice, min(nbest, _MOST_HYPOTHESES))
        return [self._hypothesis(path, is_final, frame_seconds) for path in paths]

    def _best(
        self, decoder: kaldi_decoder.FasterDecoder, scores: npt.NDArray[np.float32]
    ) -> tuple[kaldifst.Lattice, bool] | None:
        """The best path, and whether it is final."""
        import kaldi_decoder

        decoder.init_decoding()
        for begin in range(0, len(scores), _FRAMES):
            rows = np.ascontiguousarray(scores[begin : begin + _FRAMES, self._pdfs])
            decoder.advance_decoding(kaldi_decoder.DecodableCtc(rows, begin))
        is_final = decoder.reached_final()
        succeeded, path = decoder.get_best_path(use_final_probs=is_final)
        is_whole = succeeded and decoder.num_frames_decoded() == len(scores)
        return (path, is_final) if is_whole else None

    def _lattice(
        self, decoder: kaldi_decoder.LatticeSimpleDecoder, scores: npt.NDArray[np.float32]
    ) -> tuple[kaldifst.Lattice, bool] | None:
        """The paths within the beams, and whether they are final; if none is, all may end."""
        import kaldi_decoder

        rows = np.ascontiguousarray(scores[:, self._pdfs])
        is_final = decoder.decode(kaldi_decoder.DecodableCtc(rows))
        succeeded, lattice = decoder.get_raw_lattice(use_final_probs=True)
        return (lattice, is_final) if succeeded else None

    def _paths(self, lattice: kaldifst.Lattice, nbest: int) -> Iterator[list[_Arc]]:
        """The cheapest paths of different words, the best first.

        To each state lead many paths of the same words, at other times; the cheapest is kept of
        each of the `nbest` cheapest sequences of words.
        """
        arcs: defaultdict[int, list[tuple[int, _Arc]]] = defaultdict(list)
        before: defaultdict[int, set[int]] = defaultdict(set)
        for line in lattice.to_str(show_weight_one=True).splitlines():
            *labels, costs = line.split()
            state, target, transition, word = map(int, [*labels, _FINAL, 0, 0][:4])
            graph, acoustic = map(float, costs.split(","))
            arcs[state].append((target, (transition, word, graph, acoustic)))
            before[target].add(state)
        numbers_of: dict[tuple[int, str], int] = {}  # of sequences of words: one, and a next word
        ways: defaultdict[int, dict[int, tuple[float, Any]]] = defaultdict(dict)
        ways[next(iter(arcs), 0)][0] = 0.0, None
        for state in TopologicalSorter(before).static_order():
            here = heapq.nsmallest(nbest, ways.pop(state, {}).items(), key=lambda way: way[1][0])
            here = [way for way in here if way[1][0] <= here[0][1][0] + self._beams[1]]
            if state == _FINAL:
                yield from (_arcs_of(way) for _, (_, way) in here)
                return
            for target, arc in arcs[state]:
                _, word, graph, acoustic = arc
                there = ways[target]
                for words, (cost, way) in here:
                    if word:
                        pair = words, self._text(word)
                        words = numbers_of.setdefault(pair, len(numbers_of) + 1)
                    cost += graph + acoustic
                    if words not in there or cost < there[words][0]:
                        there[words] = cost, (way, arc)

    def _hypothesis(self, path: list[_Arc], is_final: bool, frame_seconds: float) -> Hypothesis:
        """The words of a path."""
        ids: list[int] = []
        labels: list[tuple[int, int]] = []  # the frame at which a word leaves the graph, its number
        for transition, word, _, _ in path:
            if word:
                labels.append((len(ids), word))
            if transition:
                ids.append(transition)
        spans = self._spans(ids, [frame for frame, _ in labels])
        words = tuple(
            Word(self._text(word), begin * frame_seconds, end * frame_seconds)
            for (_, word), (begin, end) in zip(labels, spans, strict=True)
        )
        graph, acoustic = (sum(arc[place] for arc in path) for place in (2, 3))
        return Hypothesis(words, graph, acoustic, is_final)

    def _text(self, word: int) -> str:
        return self._words.get(word, f"#{word}")

    def _spans(self, ids: Sequence[int], labels: Sequence[int]) -> list[tuple[int, int]]:
        """The first frame of each word, and the one after its last."""
        spans, begin = [], 0
        for start, end in self._phone_spans(ids):
            kind = self._boundaries.get(int(self._phones[ids[start]]), "")
            if kind in _STARTS:
                begin = start
            if kind in _ENDS:
                spans.append((begin, end))
        if len(spans) == len(labels):
            return spans
        return list(itertools.pairwise([*labels, len(ids)]))

    def _phone_spans(self, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The first frame of each phone of a path, and the one after its last.

        A phone ends with the transition to the last state of its HMM, and with the self-loops of
        the state before, which Kaldi's graphs have after this transition.
        """
        start = frame = 0
        while frame < len(ids):
            loop = self._loops[ids[frame]]
            is_end = self._ends[ids[frame]]
            frame += 1
            if is_end:
                while loop and frame < len(ids) and ids[frame] == loop:
                    frame += 1
                yield start, frame
                start = frame
        if start < frame:
            yield start, frame


def _arcs_of(way: Any) -> list[_Arc]:
    """The arcs of a path, from its last one: the way to this, and the arc."""
    arcs = []
    while way is not None:
        way, arc = way
        arcs.append(arc)
    return arcs[::-1]


def _read_boundaries(path: Path) -> dict[int, str]:
    """What phones are in a word, from word_boundary.int.

    Raises:
        SpeechError: it cannot be read, or a line is no number and kind.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SpeechError(f"{path}: the file cannot be read: {error}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        parts = line.split()
        if len(parts) != 2 or re.fullmatch("[0-9]{1,9}", parts[0]) is None:
            raise SpeechError(
                f"{path}, line {number}: expected a phone and its place in words, found "
                f"{line[:60]!r}"
            )
        found[int(parts[0])] = parts[1]
    return found


def _phone_ends(
    transitions: Transitions,
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """For each transition-id whether it ends a phone, and the self-loop of its state, or 0."""
    ends = np.zeros(transitions.num_ids + 1, np.bool_)
    loops = np.zeros(transitions.num_ids + 1, np.int64)
    for state, (phone, hmm_state, _, _) in enumerate(transitions.model.tuples):
        entry = topology_of(transitions.model, phone)
        first = int(transitions.first_ids[state])
        for place, (destination, _) in enumerate(entry[hmm_state].transitions):
            ends[first + place] = destination == len(entry) - 1
            loops[first + place] = transitions.self_loops[state]
    return ends, loops
