"""What was said: a lexicon, transcripts, and what is trained from them without alignments.

The files are Kaldi's: `lexicon.txt` (a word and its phones on each line, a line for each
pronunciation), `lexiconp.txt` (the same with a probability after the word), and `text` (a key and
the words of an utterance).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import attrs
import numpy as np
from nnet3_descriptors.files import parse_real, read_file
from nnet3_speech.hmm import ContextDependency, Transitions

from nnet3_training.chain.fsts.fst import Arc, Fst, Graph
from nnet3_training.chain.graphs.phone_lm import estimate_phone_lm
from nnet3_training.chain.graphs.supervisions import end_to_end
from nnet3_training.chain.graphs.transition_graph import (
    in_context,
    make_denominator_fst,
    transition_graph,
)
from nnet3_training.chain.supervision import ChainSupervision
from nnet3_training.errors import ExampleError

_POSITIONS = ("_B", "_I", "_E", "_S")
"""Endings of phones at the begin, inside and at the end of a word, and of a word of one phone."""
_SILENCES = ("SIL", "sil")
_AT_EDGES, _BETWEEN = 0.8, 0.2
"""How often `drawn_phones` has silence at the ends of an utterance, and between words. (Kaldi's
script for end-to-end training draws with these probabilities.)"""
_MOST_WORDS, _MOST_KEYS = 100, 3
"""How many missing words, and utterances of each, an error lists."""


class Pronunciation(NamedTuple):
    """A pronunciation of a word.

    Attributes:
        phones: Numbers of its phones.
        cost: Minus the logarithm of its probability.
    """

    phones: tuple[int, ...]
    cost: float = 0.0


@attrs.frozen(kw_only=True, eq=False)
class Lexicon:
    """The pronunciations of words.

    Attributes:
        words: By word, its pronunciations; at least one of at least one phone.
        silence: The phone that may be before, between and after words; 0 for none.
        oov: The word that stands for words without pronunciation; "" for none.

    Raises:
        ExampleError: `oov` is none of the words.
    """

    words: Mapping[str, tuple[Pronunciation, ...]] = attrs.field(repr=lambda each: f"<{len(each)}>")
    silence: int = 0
    oov: str = ""

    def __attrs_post_init__(self) -> None:
        if self.oov and self.oov not in self.words:
            raise ExampleError(
                f"expected a word of the lexicon for words that it lacks, found '{self.oov}'"
            )

    def check(self, transcripts: Mapping[str, Sequence[str]]) -> None:
        """Checks that the lexicon has all words of transcripts.

        Args:
            transcripts: By key, the words of an utterance.

        Raises:
            ExampleError: it lacks words, which the error lists with their utterances, and `oov` is
                not given.
        """
        missing: dict[str, list[str]] = {}
        for key, words in transcripts.items():
            for word in dict.fromkeys(words):
                if word not in self.words and not self.oov:
                    missing.setdefault(word, []).append(key)
        if not missing:
            return
        listed = [f"'{word}' ({_few(keys)})" for word, keys in missing.items()][:_MOST_WORDS]
        more = f" and {len(missing) - len(listed)} more" if len(missing) > len(listed) else ""
        what = "a word" if len(missing) == 1 else f"{len(missing)} words"
        raise ExampleError(
            f"the lexicon lacks {what} of the transcripts: {', '.join(listed)}{more}: add them, or "
            "name a word of the lexicon that stands for such words (oov, --oov)"
        )

    def phone_graph(self, words: Sequence[str]) -> Fst:
        """The acceptor of the phone sequences of some words.

        Each word has any of its pronunciations, at their costs. Before, between and after words
        there may be silence, at no cost.

        Raises:
            ExampleError: there are no words, or the lexicon lacks one.
        """
        if not words:
            raise ExampleError("expected words, found none")
        graph = Graph()
        start, previous = graph.add_state(), -1
        for word in words:
            silent = self._after_silence(graph, start)
            previous, start = start, graph.add_state()
            for phones, cost in self._pronunciations(word):
                places = [graph.add_state() for _ in phones[1:]] + [start]
                for begin in (previous, *silent):
                    graph.arcs[begin].append(Arc(phones[0], cost, places[0]))
                for place, phone in enumerate(phones[1:]):
                    graph.arcs[places[place]].append(Arc(phone, 0.0, places[place + 1]))
        for end in (start, *self._after_silence(graph, start)):
            graph.finals[end] = 0.0
        return graph.fst()

    def _after_silence(self, graph: Graph, state: int) -> list[int]:
        """The state that silence leads to from another, if there is a phone for it."""
        if not self.silence:
            return []
        after = graph.add_state()
        graph.arcs[state].append(Arc(self.silence, 0.0, after))
        return [after]

    def drawn_phones(self, words: Sequence[str], rng: np.random.Generator) -> list[int]:
        """One of the phone sequences of some words, at random.

        Pronunciations are drawn by their probabilities. Silence is at each end with probability
        0.8, and between words with probability 0.2.

        Raises:
            ExampleError: the lexicon lacks a word.
        """
        result: list[int] = []
        for number in range(len(words) + 1):
            share = _BETWEEN if 0 < number < len(words) else _AT_EDGES
            if self.silence and rng.random() < share:
                result.append(self.silence)
            if number < len(words):
                known = self._pronunciations(words[number])
                weights = np.exp([-each.cost for each in known])
                result += known[int(rng.choice(len(known), p=weights / weights.sum()))].phones
        return result

    def _pronunciations(self, word: str) -> tuple[Pronunciation, ...]:
        found = self.words.get(word) or self.words.get(self.oov)
        if found is None:
            raise ExampleError(f"the lexicon lacks the word '{word}'")
        return found


def _few(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
    return f"{', '.join(keys[:_MOST_KEYS])}{more}"


def read_lexicon(
    path: str | os.PathLike[str],
    phones: Mapping[int, str],
    *,
    silence: str | None = None,
    oov: str = "",
) -> Lexicon:
    """Reads a lexicon.

    If the model's phones depend on their position in a word (`a_B`, `a_I`, `a_E`, `a_S`), those of
    the lexicon get these endings, unless they have them already.

    Args:
        path: lexicon.txt, or lexiconp.txt, whose second column has probabilities.
        phones: The names of the model's phones, as `nnet3_speech.read_symbols` reads phones.txt.
        silence: The name of the phone that may be between words; "" for none. By default SIL or
            sil, if the model has one.
        oov: The word that stands for words without pronunciation, such as `<unk>`; "" for none.

    Raises:
        FileError: the file cannot be read.
        ExampleError: a line is no pronunciation, or names a phone that the model lacks; or the
            lexicon is empty, or lacks `oov`.
    """
    numbers = {name: number for number, name in phones.items()}
    if silence is None:
        silence = next((name for name in _SILENCES if name in numbers), "")
    if silence and silence not in numbers:
        raise ExampleError(f"the model has no phone '{silence}', which is to be silence")
    lines = list(_lines(path))
    has_probabilities = bool(lines) and all(
        len(fields) > 2 and fields[1] not in numbers and _probability(fields[1]) is not None
        for _, fields in lines
    )
    words: dict[str, dict[tuple[int, ...], float]] = {}
    for where, (word, *names) in lines:
        cost = 0.0
        if has_probabilities:
            cost = -math.log(_probability(names.pop(0)) or 1.0)
        if not names:
            raise ExampleError(f"{where}: expected a word and its phones, found only '{word}'")
        known = words.setdefault(word, {})
        found = _numbers(where, names, numbers)
        known[found] = min(cost, known.get(found, math.inf))
    if not words:
        raise ExampleError(f"{os.fspath(path)}: expected words and their phones, found none")
    return Lexicon(
        words={word: tuple(map(Pronunciation._make, each.items())) for word, each in words.items()},
        silence=numbers.get(silence, 0),
        oov=oov,
    )


def _probability(text: str) -> float | None:
    """The number of a text if it is above 0 and at most 1."""
    try:
        value = parse_real(text)
    except ValueError:
        return None
    return value if 0.0 < value <= 1.0 else None


def _numbers(where: str, names: Sequence[str], numbers: Mapping[str, int]) -> tuple[int, ...]:
    """The phones of a word, with the endings of their positions if the model has such phones."""
    begin, inside, end, alone = _POSITIONS
    endings = [begin, *[inside] * (len(names) - 2), end] if len(names) > 1 else [alone]
    result = []
    for name, ending in zip(names, endings, strict=True):
        number = numbers.get(name + ending, numbers.get(name, 0))
        if not number:
            raise ExampleError(
                f"{where}: the model has no phone '{name}'"
                + (f", nor '{name}{ending}'" if begin in {each[-2:] for each in numbers} else "")
            )
        result.append(number)
    return tuple(result)


def read_transcripts(path: str | os.PathLike[str]) -> dict[str, tuple[str, ...]]:
    """Reads the words of utterances: Kaldi's `text`, a key and words on each line.

    Returns:
        By key, the words; in the order of the file.

    Raises:
        FileError: the file cannot be read.
        ExampleError: a key comes twice, or a line is not in UTF-8.
    """
    result: dict[str, tuple[str, ...]] = {}
    for where, (key, *words) in _lines(path):
        if key in result:
            raise ExampleError(f"{where}: utterance '{key}' comes for the second time")
        result[key] = tuple(words)
    return result


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[str, list[str]]]:
    """The fields of each line that has some, with its place for errors."""
    for number, line in enumerate(read_file(path).splitlines(), 1):
        where = f"{os.fspath(path)}, line {number}"
        try:
            fields = [field.decode() for field in line.split()]  # at ASCII blanks
        except UnicodeDecodeError as error:
            raise ExampleError(f"{where}: this is not in UTF-8: {error.reason}") from error
        if fields:
            yield where, fields


_DRAWS = 5
"""Phone sequences drawn of each transcript for the phone language model: with fewer, it would lack
more of the places where silence may be."""
_OCTAVE = 4
"""Lengths have so many significant bits: eight lengths from a power of two to the next."""


@attrs.frozen(kw_only=True, eq=False)
class Transcripts:
    """What was said in utterances, for a model.

    Attributes:
        words: By key, the words of an utterance.
        lexicon: The pronunciations of all words.
        tree: The model's tree.
        transitions: The model's transition model.

    Raises:
        ExampleError: the lexicon lacks words.
    """

    words: Mapping[str, tuple[str, ...]] = attrs.field(repr=lambda each: f"<{len(each)}>")
    lexicon: Lexicon
    tree: ContextDependency = attrs.field(repr=False)
    transitions: Transitions = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        self.lexicon.check(self.words)

    def training_graph(self, key: str) -> Fst:
        """The acceptor of the transition-ids of an utterance, as compile-train-graphs makes it.

        Only pronunciations have costs: those of transitions and of phones are in the denominator.

        Raises:
            ExampleError: the utterance has no transcript, or no words.
            HmmError: a phone has no topology, or the tree no pdf for it.
        """
        if key not in self.words:
            raise ExampleError(f"No transcript for utterance {key}")
        try:
            phones = Graph.of(self.lexicon.phone_graph(self.words[key]))
        except ExampleError as error:
            raise ExampleError(f"utterance '{key}': {error}") from error
        windows = in_context(phones, self.tree)
        return transition_graph(windows, self.tree, self.transitions, probabilities=False).fst()

    def supervision(
        self, key: str, num_frames: int, frame_subsampling_factor: int
    ) -> ChainSupervision:
        """The supervision of a whole utterance: which phones, but not when ("end to end").

        It may have up to an eighth more frames than the utterance, so that many utterances have the
        same length, and can be merged.

        Args:
            key: The utterance.
            num_frames: Its frames of features.
            frame_subsampling_factor: Number of these for each output frame.

        Raises:
            ExampleError: see `training_graph` and `end_to_end`.
            HmmError: see `training_graph`.
        """
        length = -(-num_frames // frame_subsampling_factor)
        unit = 1 << max(length.bit_length() - _OCTAVE, 0)
        graph = self.training_graph(key)
        try:
            known = end_to_end(graph, self.transitions, max(length, 1))
        except ExampleError as error:
            raise ExampleError(f"utterance '{key}': {error}") from error
        return attrs.evolve(known, frames_per_sequence=-(-length // unit) * unit)

    def denominator(self, *, seed: int = 0) -> Fst:
        """The denominator of the phones of all transcripts, for a model whose own is lost.

        Its phone language model knows only what the transcripts have. Silence, and pronunciations
        of words with several, are drawn at random.

        Args:
            seed: Seed of the draws.

        Raises:
            ExampleError: there are no transcripts.
            HmmError: see `training_graph`.
        """
        rng = np.random.default_rng(seed)
        spoken = [words for words in self.words.values() if words]
        sequences = [
            self.lexicon.drawn_phones(words, rng) for _ in range(_DRAWS) for words in spoken
        ]
        phone_lm = estimate_phone_lm(sequences).fst
        return make_denominator_fst(phone_lm, self.tree, self.transitions)
