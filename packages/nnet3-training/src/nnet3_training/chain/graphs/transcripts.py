"""Supervisions and a denominator from what was said: no alignments, no training graphs of Kaldi."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import numpy as np
from nnet3_speech.hmm import ContextDependency, Transitions

from nnet3_training.chain.fsts.fst import Fst
from nnet3_training.chain.fsts.graph import Graph
from nnet3_training.chain.graphs.context import in_context
from nnet3_training.chain.graphs.denominator_fst import make_denominator_fst
from nnet3_training.chain.graphs.lexicon import Lexicon
from nnet3_training.chain.graphs.phone_lm import PhoneLmOptions, estimate_phone_lm
from nnet3_training.chain.graphs.transition_graph import transition_graph
from nnet3_training.chain.graphs.unconstrained import end_to_end
from nnet3_training.chain.supervision import ChainSupervision
from nnet3_training.errors import ExampleError

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

    def denominator(self, options: PhoneLmOptions | None = None, *, seed: int = 0) -> Fst:
        """The denominator of the phones of all transcripts, for a model whose own is lost.

        Its phone language model knows only what the transcripts have. Silence, and pronunciations
        of words with several, are drawn at random.

        Args:
            options: The size of the phone language model.
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
        phone_lm = estimate_phone_lm(sequences, options).fst
        return make_denominator_fst(phone_lm, self.tree, self.transitions)
