"""Examples made of utterances: features, and classes, posteriors or targets for each frame."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors.files import BinaryReader, CompressedMatrix, Reader
from nnet3_descriptors.indexes import IndexArray, T

from nnet3_training.egs import chunks, files
from nnet3_training.egs.changes import INPUT, IVECTOR, OUTPUT, with_compression
from nnet3_training.egs.examples import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    FloatArray,
    PathSupervision,
    SparsePosteriors,
    StoredMatrix,
    TrainingExample,
    weights_of,
)
from nnet3_training.errors import ExampleError

Posterior = list[list[tuple[int, float]]]
"""For each frame, pairs of a class and its weight."""

_MAX_FRAMES: Final = 1 << 24
_BLANKS: Final = b" \t\r"


def read_posterior(reader: Reader) -> Posterior:
    """Reads posteriors: in text `[ class weight ... ] [ ... ]` on one line.

    Raises:
        ModelFileError: the file holds something else there.
    """
    if isinstance(reader, BinaryReader):
        return [
            [
                (reader.integer(), reader.real())
                for _ in range(reader.count("classes", maximum=_MAX_FRAMES))
            ]
            for _ in range(reader.count("frames", maximum=_MAX_FRAMES))
        ]
    frames: Posterior = []
    while not _line_ends(reader):
        reader.expect("[")
        frame = []
        reader.skip_blanks()
        while not reader.next_is(b"]"):
            frame.append((reader.integer(), reader.real()))
            reader.skip_blanks()
        reader.position += 1
        frames.append(frame)
    return frames


def _line_ends(reader: Reader) -> bool:
    """Whether the line has no more words; reads its end if so."""
    while reader.remaining and bytes(reader.data[reader.position : reader.position + 1]) in _BLANKS:
        reader.position += 1
    if not reader.remaining:
        return True
    if reader.next_is(b"\n"):
        reader.position += 1
        return True
    return False


def read_alignment(reader: Reader) -> npt.NDArray[np.int64]:
    """Reads the class of each frame, (frames,): in text, integers on one line.

    Raises:
        ModelFileError: the file holds something else there.
    """
    return reader.table_integers().astype(np.int64)


Features = FloatArray | CompressedMatrix


def _check_matrix(values: object, what: str) -> None:
    is_full = isinstance(values, np.ndarray) and values.ndim == 2 and values.dtype.kind in "fiu"
    if not is_full and not isinstance(values, CompressedMatrix):
        shape = f" of shape {values.shape}" if isinstance(values, np.ndarray) else ""
        raise ExampleError(
            f"expected {what}, an array of numbers (rows, columns), found "
            f"{type(values).__name__}{shape}"
        )


def _full(matrix: Features | None) -> FloatArray | None:
    """A matrix that may be compressed, decompressed."""
    return matrix.decompressed() if isinstance(matrix, CompressedMatrix) else matrix


Known = SparsePosteriors | DenseTargets | PathSupervision
"""The supervision of an utterance, or of a part of it."""


@attrs.frozen(kw_only=True, eq=False)
class Utterance:
    """An utterance from which examples are made.

    Attributes:
        key: Its name; the name of an example is this, "-" and its first frame.
        features: (frames, dim), full or compressed.
        supervision: A row for each output frame. Posteriors may instead have a row for each input
            frame, as in Kaldi; the number of rows tells. Or, for a 'chain' model, the supervision
            of the whole utterance, without weights of the normalization FST. Its labels are 1 + the
            number of a pdf, or transition-ids if the maker of examples has a transition model.
        ivectors: (number, dim), or None; each example gets the i-vector of one of its frames.
        ivector_period: Frames for each i-vector.
        deriv_weights: (output frames,), for a 'chain' model the factors of derivatives, or None for
            1; frames missing at the end have 0.

    Raises:
        ExampleError: a field is of another kind, the period is below 1, there are i-vectors, but
            no rows of them, or weights of derivatives without a supervision of a 'chain' model.
    """

    key: str
    features: Features
    supervision: Known
    ivectors: FloatArray | None = attrs.field(default=None, converter=_full)
    ivector_period: int = 1
    deriv_weights: FloatArray | None = attrs.field(
        default=None, converter=attrs.converters.optional(weights_of)
    )

    def __attrs_post_init__(self) -> None:
        where, period = f"utterance '{self.key}': ", self.ivector_period
        known: object = self.supervision
        _check_matrix(self.features, f"{where}features")
        if not isinstance(known, Known):
            raise ExampleError(
                f"{where}expected SparsePosteriors or DenseTargets or ChainSupervision, found "
                f"{type(known).__name__}"
            )
        if self.deriv_weights is not None and not isinstance(known, PathSupervision):
            raise ExampleError(f"{where}deriv_weights are for 'chain' models")
        if self.ivectors is not None:
            _check_matrix(self.ivectors, f"{where}i-vectors")
            if not len(self.ivectors):
                raise ExampleError(f"utterance '{self.key}' has no i-vectors")
        if not isinstance(period, int | np.integer) or period < 1:
            raise ExampleError(f"{where}ivector_period must be an integer >= 1 (got {period!r})")


def get_examples(
    utterances: Iterable[Utterance],
    options: chunks.SplitOptions,
    *,
    seed: int = 0,
    compress: bool = False,
    length_tolerance: int = 2,
) -> Iterator[TrainingExample]:
    """Makes examples of utterances, one for each chunk, as `nnet3-get-egs` does.

    Args:
        utterances: Taken one at a time; those too short for a chunk give no example.
        options: The lengths of chunks, their context, and the frames for each output frame. The
            context that a network needs is `nnet3_graph.compute_context(nnet)`.
        seed: Of the random choice of chunk lengths, and of i-vectors.
        compress: Whether features and dense targets are compressed, as Kaldi does by default.
        length_tolerance: See `make_examples`.

    Yields:
        Examples in the order of the utterances; see `make_examples`.

    Raises:
        ExampleError: see `make_examples`; or the options are no `SplitOptions`.
    """
    rng = chunks.CRandom(seed)
    splitter = chunks.UtteranceSplitter(options, rng)
    for utterance in utterances:
        yield from make_examples(
            utterance, splitter, rng, compress=compress, length_tolerance=length_tolerance
        )


def make_examples(
    utterance: Utterance,
    splitter: chunks.UtteranceSplitter,
    rng: chunks.Random,
    *,
    compress: bool = False,
    length_tolerance: int = 2,
) -> list[TrainingExample]:
    """The examples of an utterance, one for each chunk.

    The input of a chunk has its context; beyond the ends of the utterance the first and the last
    frame are repeated. Posteriors are divided by the number of chunks that their frame is in.
    Compressed features stay as they are.

    Args:
        utterance: Features and labels.
        splitter: Chooses the chunks.
        rng: Draws the i-vectors.
        compress: Whether to compress features and dense targets.
        length_tolerance: Number of rows by which the length of the supervision may differ from that
            of the features.

    Returns:
        Examples of the inputs "input" and "ivector" and the output "output"; none if the utterance
        is too short.

    Raises:
        ExampleError: numbers to compress are not finite, or the supervision is of another length;
            or this is no `Utterance`, or one of a 'chain' model.
    """
    if not isinstance(utterance, Utterance):
        raise ExampleError(f"expected an Utterance, found {type(utterance).__name__}")
    known = utterance.supervision
    if isinstance(known, PathSupervision):
        raise ExampleError(f"utterance '{utterance.key}' is for a 'chain' model")
    examples: list[TrainingExample] = []
    length, step = utterance.features.shape[0], splitter.options.frame_subsampling_factor
    if not length:
        return examples
    _check_length(utterance.key, known, length, step, length_tolerance)
    for chunk in splitter.chunks(length):
        part = _supervision(known, length, chunk, step)
        count = chunk.left_context + chunk.num_frames + chunk.right_context
        key = f"{utterance.key}-{chunk.first_frame}"
        example = example_of_chunk(key, utterance, chunk, part, step, rng, count)
        examples.append(with_compression(example) if compress else example)
    return examples


def example_of_chunk(
    key: str,
    utterance: Utterance,
    chunk: chunks.UtteranceChunk,
    supervision: Known,
    step: int,
    rng: chunks.Random,
    num_drawn: int,
) -> TrainingExample:
    """The example of a chunk.

    Args:
        key: Its key.
        utterance: The utterance.
        chunk: The chunk.
        supervision: That of the chunk.
        step: Frames of the input for each frame of the output.
        rng: Draws the i-vector.
        num_drawn: Its frame is one of so many, from the first of the input on.
    """
    inputs = [_input_of(utterance.features, chunk)]
    if utterance.ivectors is not None:
        first = chunk.first_frame - chunk.left_context
        frame = int(rng.integers(first, first + num_drawn))
        row = min(max(frame // utterance.ivector_period, 0), len(utterance.ivectors) - 1)
        vector = utterance.ivectors[row : row + 1]
        inputs.append(ExampleInput(name=IVECTOR, indexes=_times(0, 1, 1), values=vector))
    indexes = _times(0, len(chunk.weights), step)
    output = ExampleOutput(name=OUTPUT, indexes=indexes, supervision=supervision)
    return TrainingExample(key=key, inputs=inputs, outputs=[output])


def _check_length(
    key: str, known: SparsePosteriors | DenseTargets, frames: int, step: int, tolerance: int
) -> None:
    """Raises an ExampleError if the supervision does not have a row for each output frame."""
    expected, found = -(-frames // step), known.shape[0]
    if isinstance(known, SparsePosteriors) and has_input_rows(known, frames, step):
        expected = frames
    if not found or abs(found - expected) > tolerance:
        raise ExampleError(
            f"utterance '{key}': expected a supervision of {expected} rows for {frames} frames of "
            f"the input, found {found}"
        )


def _times(start: int, count: int, step: int) -> IndexArray:
    """The indexes of rows at t = start, start + step, ..., (count, 3)."""
    indexes = np.zeros((count, 3), dtype=np.int32)
    indexes[:, T] = start + step * np.arange(count)
    return indexes


def _input_of(features: Features, chunk: chunks.UtteranceChunk) -> ExampleInput:
    """The features of a chunk with its context.

    The first or last frame stands for each frame beyond the ends.
    """
    first = chunk.first_frame - chunk.left_context
    count = chunk.left_context + chunk.num_frames + chunk.right_context
    if isinstance(features, CompressedMatrix):
        values: Features = features.with_rows(first, count)
    else:
        values = features[np.clip(np.arange(first, first + count), 0, len(features) - 1)]
    return ExampleInput(name=INPUT, indexes=_times(-chunk.left_context, count, 1), values=values)


def _supervision(
    known: SparsePosteriors | DenseTargets, length: int, chunk: chunks.UtteranceChunk, step: int
) -> SparsePosteriors | DenseTargets:
    """The supervision of the frames of a chunk of an utterance of so many frames."""
    frames = chunk.first_frame // step + np.arange(len(chunk.weights))
    if isinstance(known, DenseTargets):
        return known.taken(np.clip(frames, 0, known.shape[0] - 1))
    rows = frames * step if has_input_rows(known, length, step) else frames
    return known.taken(rows, chunk.weights)


def has_input_rows(known: SparsePosteriors, num_frames: int, step: int) -> bool:
    """Whether posteriors have a row for each frame of the input rather than of the output.

    Args:
        known: The posteriors.
        num_frames: Frames of the input.
        step: Frames of the input for one of the output.
    """
    rows, num_outputs = known.shape[0], -(-num_frames // step)
    return abs(rows - num_frames) < abs(rows - num_outputs)


def posteriors(frames: Sequence[Sequence[tuple[int, float]]], dim: int) -> SparsePosteriors:
    """Posteriors of pairs of a class and a weight, by frame.

    Classes are sorted, and the weights of a repeated class are added.

    Raises:
        ExampleError: a class is not an integer from 0 to dim - 1, or a weight is not finite.
    """
    rows = []
    for frame in frames:
        sums: dict[int, float] = {}
        for number, weight in frame:
            with np.errstate(over="ignore"):
                sums[number] = float(np.float32(sums.get(number, 0.0) + weight))
            if not math.isfinite(sums[number]):
                raise ExampleError(f"the weight {weight} of class {number} is not finite")
        rows.append(sorted(sums.items()))
    return SparsePosteriors(
        dim=dim,
        splits=np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64))),
        classes=[number for row in rows for number, _ in row],
        weights=np.array([weight for row in rows for _, weight in row], dtype=np.float32),
    )


def example_of_matrices(key: str, matrices: Iterable[tuple[str, StoredMatrix]]) -> TrainingExample:
    """An example of whole matrices, whose rows are t = 0, 1, ..., as `nnet3-get-egs-simple` makes.

    Args:
        key: Its key.
        matrices: The matrix (rows, dim) of each input and output, by name; names of outputs begin
            with "output".
    """
    ios = ((name, _times(0, matrix.shape[0], 1), matrix) for name, matrix in matrices)
    return attrs.evolve(files.example_of(ios), key=key)


@attrs.frozen(kw_only=True)
class SpeakerChunk:
    """A stretch of an utterance whose speaker is known, for x-vectors.

    Attributes:
        key: Name of the example.
        archive: Number of its archive.
        first_frame: Its first frame; an earlier one is used if the utterance ends too soon.
        num_frames: Its length.
        speaker: The number of the speaker.
    """

    key: str
    archive: int
    first_frame: int
    num_frames: int
    speaker: int

    def example(
        self, features: npt.NDArray[np.float32], num_speakers: int, *, compress: bool = False
    ) -> TrainingExample | None:
        """The example of this stretch; None if the utterance is shorter.

        Args:
            features: (frames, dim), the features of the utterance.
            num_speakers: Number of speakers, the dimension of the output.
            compress: Whether to compress features.

        Raises:
            ExampleError: there is no speaker of that number, or features to compress are not
                finite.
        """
        if len(features) < self.num_frames:
            return None
        first = min(self.first_frame, len(features) - self.num_frames)
        if first < 0:
            raise ExampleError(f"'{self.key}': the first frame must not be negative")
        example = TrainingExample(
            key=self.key,
            inputs=[
                ExampleInput.from_sequences(INPUT, [features[first : first + self.num_frames]])
            ],
            outputs=[ExampleOutput.from_labels(OUTPUT, [[self.speaker]], num_speakers)],
        )
        return with_compression(example) if compress else example


def parse_ranges(lines: Sequence[str]) -> dict[str, list[SpeakerChunk]]:
    """By utterance, its stretches in a ranges file of Kaldi.

    The six fields of a line: utterance, number of the archive among the written ones, its number
    among all archives, first frame, number of frames, speaker.

    Raises:
        ExampleError: a line lacks these fields.
    """
    result: dict[str, list[SpeakerChunk]] = {}
    for number, line in enumerate(lines, 1):
        fields = [field.decode() for field in line.encode().split()]  # at ASCII blanks
        try:
            utterance, archive, _, first, frames, speaker = fields
            numbers = [int(field) for field in (archive, first, frames, speaker)]
            if min(numbers) < 0 or not numbers[2]:
                raise ValueError
        except ValueError:
            raise ExampleError(
                f"line {number}: expected an utterance and five numbers, found '{line.strip()}'"
            ) from None
        chunk = SpeakerChunk(
            key=f"{utterance}-{first}-{frames}-{speaker}",
            archive=numbers[0],
            first_frame=numbers[1],
            num_frames=numbers[2],
            speaker=numbers[3],
        )
        result.setdefault(utterance, []).append(chunk)
    return result
