"""Examples of 'chain' models made of utterances: chunks of features with parts of supervisions."""

from __future__ import annotations

import logging

import attrs
import numpy as np
from nnet3_speech.hmm import Transitions

from nnet3_training.chain.graphs import Normalization, SupervisionSplitter, unconstrained
from nnet3_training.chain.supervision import ChainSupervision
from nnet3_training.egs import chunks
from nnet3_training.egs.examples import FloatArray, TrainingExample
from nnet3_training.egs.making import Utterance, example_of_chunk
from nnet3_training.errors import ExampleError

_LOGGER = logging.getLogger(__name__)

_CHECKED = 6
"""Kaldi checks the supervision of one example in this many, drawn at random."""

_LEAST_FRAMES = 2
"""The fewest output frames of an example."""


@attrs.frozen(kw_only=True, eq=False)
class ChainExampleMaker:
    """Makes the examples of utterances.

    Attributes:
        splitter: Chooses the chunks.
        normalization: Gives paths their weights; None to leave that for later.
        rng: Draws the i-vectors.
        transitions: If given, examples say which transitions follow each other, but not when
            ("end to end"); else None.
        length_tolerance: Number of output frames by which the length of the supervision may differ
            from the lengths of features and derivative weights.
        has_long_keys: Whether the key of an example also says its length and context.

    Raises:
        ExampleError: the splitter's options list a length of chunks with one output frame. Kaldi
            neither writes nor reads such examples.
    """

    splitter: chunks.UtteranceSplitter
    normalization: Normalization | None
    rng: chunks.Random
    transitions: Transitions | None = None
    length_tolerance: int = 1
    has_long_keys: bool = False

    def __attrs_post_init__(self) -> None:
        options = self.splitter.options
        for length in options.num_frames:
            if length // options.frame_subsampling_factor < _LEAST_FRAMES:
                raise ExampleError(
                    f"num_frames: expected chunks of at least {_LEAST_FRAMES} output frames, "
                    f"{_LEAST_FRAMES * options.frame_subsampling_factor} frames of the input, "
                    f"found {length}"
                )

    def examples(self, utterance: Utterance) -> list[TrainingExample | None]:
        """The examples of an utterance, one for each chunk.

        Beyond the ends of the utterance the first and the last frame are repeated. Derivatives are
        divided by the number of chunks that a frame is in. If the supervision says when nothing is
        ("end to end"), there is one example, of the whole utterance. Frames of the supervision
        beyond the end of the utterance then have no derivative. If no path is in the normalization
        FST, the paths stay without its weights, with a warning, as in Kaldi.

        Returns:
            Examples of the inputs "input" and "ivector" and the output "output"; None for a chunk
            without a path in the normalization FST. Empty if the utterance is too short.

        Raises:
            ExampleError: the utterance cannot be used, see `usable_frames`, or the labels are not
                those of the transition model.
        """
        known = _supervision(utterance)
        if known.e2e_fsts:
            return [self._whole(utterance, known)]
        step = self.splitter.options.frame_subsampling_factor
        length = self.usable_frames(utterance)
        parts = SupervisionSplitter(known)
        result: list[TrainingExample | None] = []
        for chunk in self.splitter.chunks(length):
            part: ChainSupervision | None = parts.part(
                chunk.first_frame // step, chunk.num_frames // step
            )
            if self.transitions is not None and part is not None:
                try:
                    part = unconstrained(part, self.transitions, self.rng)
                except ExampleError as error:
                    raise ExampleError(f"utterance '{utterance.key}': {error}") from error
            if self.normalization is not None and part is not None:
                part = self.normalization.added(part)
            key = self._key(utterance, chunk)
            result.append(
                None
                if part is None
                else _example(key, utterance, chunk, part, step, self.rng, length)
            )
        return result

    def _whole(self, utterance: Utterance, known: ChainSupervision) -> TrainingExample:
        options = self.splitter.options
        step, weights = options.frame_subsampling_factor, utterance.deriv_weights
        if weights is None:
            weights = np.ones(-(-utterance.features.shape[0] // step), dtype=np.float32)
        if self.normalization is not None:
            normalized = self.normalization.added(known)
            if normalized is None:
                _LOGGER.warning(
                    "For utterance %s, FST was empty after composing with normalization FST; the "
                    "example has its paths without weights.",
                    utterance.key,
                )
            known = normalized or known
        whole = attrs.evolve(utterance, supervision=known, deriv_weights=weights)
        num_frames = known.frames_per_sequence * step
        return whole_example(f"{utterance.key}-0", whole, num_frames, options, self.rng)

    def usable_frames(self, utterance: Utterance) -> int:
        """The number of frames of the input, without those beyond the end of the supervision.

        Raises:
            ExampleError: lengths do not fit each other, or there are too few frames for an example;
                or the utterance is not one of a 'chain' model.
        """
        step = self.splitter.options.frame_subsampling_factor
        length: int = utterance.features.shape[0]
        known = _supervision(utterance).frames_per_sequence
        if abs(known - -(-length // step)) > self.length_tolerance:
            raise ExampleError(
                f"utterance '{utterance.key}': expected a supervision of {-(-length // step)} "
                f"frames for {length} of the input, found {known}"
            )
        weights = utterance.deriv_weights
        if weights is not None and abs(len(weights) - known) > self.length_tolerance:
            raise ExampleError(
                f"utterance '{utterance.key}': expected {known} weights of derivatives, as frames "
                f"of the supervision, found {len(weights)}"
            )
        usable = min(length, known * step)
        if usable // step < _LEAST_FRAMES:
            raise ExampleError(
                f"Not producing egs for utterance {utterance.key} because it is too short: "
                f"{usable} frames."
            )
        return usable

    def _key(self, utterance: Utterance, chunk: chunks.UtteranceChunk) -> str:
        key = f"{utterance.key}-{chunk.first_frame}"
        if self.has_long_keys:
            key += f"-{chunk.left_context}-{chunk.num_frames}-{chunk.right_context}-v1"
        return key


def _supervision(utterance: Utterance) -> ChainSupervision:
    """The supervision of an utterance of a 'chain' model.

    Raises:
        ExampleError: it is none.
    """
    known = utterance.supervision
    if not isinstance(known, ChainSupervision):
        raise ExampleError(
            f"utterance '{utterance.key}': expected a ChainSupervision, found "
            f"{type(known).__name__}"
        )
    return known


def whole_example(
    key: str,
    utterance: Utterance,
    num_frames: int,
    options: chunks.SplitOptions,
    rng: chunks.Random,
) -> TrainingExample:
    """The example of a whole utterance and all of its supervision.

    Args:
        key: Its key.
        utterance: The utterance; its supervision has the weights of the normalization FST already.
        num_frames: Frames of the input without context. Missing ones repeat the last frame of the
            features; surplus ones belong to the context.
        options: The context, and the subsampling factor.
        rng: Draws the i-vector.

    Raises:
        ExampleError: there are too few frames for an example; or the utterance is not one of a
            'chain' model.
    """
    length, known = utterance.features.shape[0], _supervision(utterance)
    if not length or known.frames_per_sequence < _LEAST_FRAMES:
        raise ExampleError(
            f"Not producing egs for utterance {utterance.key} because it is too short: {length} "
            "frames."
        )
    left, right = options.context(is_first=True, is_last=True)
    chunk = chunks.UtteranceChunk(
        first_frame=0,
        num_frames=num_frames,
        left_context=left,
        right_context=right,
        weights=np.ones(known.frames_per_sequence, dtype=np.float32),
    )
    step = options.frame_subsampling_factor
    return _example(key, utterance, chunk, known, step, rng, length)


def _example(
    key: str,
    utterance: Utterance,
    chunk: chunks.UtteranceChunk,
    part: ChainSupervision,
    step: int,
    rng: chunks.Random,
    length: int,
) -> TrainingExample:
    """The example of a chunk; the i-vector is that of one of `length` frames."""
    known = attrs.evolve(part, deriv_weights=_weights(utterance, chunk, step))
    rng.integers(0, _CHECKED)  # Kaldi decides here whether to check the supervision
    return example_of_chunk(key, utterance, chunk, known, step, rng, length)


def _weights(utterance: Utterance, chunk: chunks.UtteranceChunk, step: int) -> FloatArray:
    """Factors of the derivatives of the chunk's frames."""
    given = utterance.deriv_weights
    if given is None:
        return chunk.weights
    first = chunk.first_frame // step
    weights = np.zeros_like(chunk.weights)
    part = given[first : first + len(weights)]
    weights[: len(part)] = part
    return weights * chunk.weights
