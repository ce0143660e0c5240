"""Examples: changing, cutting from utterances, reading and writing in every form."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnet3_descriptors.files import BinaryReader, CompressedMatrix, TextReader, compressed
from nnet3_training import (
    DenseTargets,
    ExampleInput,
    ExampleMerger,
    ExampleOutput,
    MinibatchRules,
    SparsePosteriors,
    TrainingExample,
    egs,
    read_examples,
    write_examples,
)
from nnet3_training.egs.files import read_stored_matrix

RNG = np.random.default_rng(0)


def example(frames: int = 4, context: int = 2) -> TrainingExample:
    """One sequence with i-vector and classes; the second frame has no class."""
    values = RNG.standard_normal((frames + 2 * context, 3), dtype=np.float32)
    return TrainingExample(
        key="a",
        inputs=[
            ExampleInput.from_sequences("input", [values], t_start=-context),
            ExampleInput.from_sequences("ivector", [[[1.0, 2.0]]]),
        ],
        outputs=[ExampleOutput.from_labels("output", [[0, -1, *[2] * (frames - 2)]], 5)],
    )


def times(each: ExampleInput | ExampleOutput) -> list[int]:
    """The t of the rows."""
    return each.indexes[:, 1].tolist()


@pytest.mark.parametrize("binary", [True, False])
def test_forms_of_matrices(binary: bool, tmp_path: Path) -> None:
    """Sparse inputs, dense targets and several outputs are read as written."""
    sparse = SparsePosteriors.from_labels([1, -1, 0], 4)
    written = TrainingExample(
        key="k",
        inputs=[
            ExampleInput(name="words", indexes=[[0, t, 0] for t in (-500, 3, 4)], values=sparse)
        ],
        outputs=[
            ExampleOutput.from_targets("output-a", [[[0.5, 0.25]]], t_start=7),
            ExampleOutput.from_labels("output-b", [[1, 1]], 2),
        ],
    )
    write_examples([written, written], tmp_path / "egs", binary=binary)

    found, again = read_examples(tmp_path / "egs")

    assert found.key == again.key == "k"
    assert times(found.inputs[0]) == [-500, 3, 4]
    np.testing.assert_array_equal(found.inputs[0].values, sparse.values)
    np.testing.assert_array_equal(found.outputs[0].supervision.values, [[0.5, 0.25]])
    assert found.outputs[1].supervision.classes.tolist() == [1, 1]


def test_shift() -> None:
    """Inputs and outputs are shifted, i-vectors are not."""
    moved = egs.shifted(example(), 3)

    assert times(moved.inputs[0]) == list(range(1, 9))
    assert times(moved.inputs[1]) == [0]
    assert times(moved.outputs[0]) == [3, 4, 5, 6]


def test_negative_context() -> None:
    """A chunk with a negative context has fewer frames of the input than of the output."""
    utterance = egs.Utterance(
        key="u",
        features=np.arange(16, dtype=np.float32).reshape(8, 2),
        supervision=egs.posteriors([[(0, 1.0)]] * 8, 2),
    )

    (made,) = egs.get_examples([utterance], egs.SplitOptions(num_frames=(8,), left_context=-3))

    assert times(made.inputs[0]) == list(range(3, 8))
    np.testing.assert_array_equal(made.inputs[0].values, utterance.features[3:])


def test_context_and_frame() -> None:
    """One frame of the output is kept, with the requested context of the input."""
    one = egs.with_context(egs.with_frame(example(), 2), left=1, right=0)

    assert times(one.outputs[0]) == [2]
    assert one.outputs[0].supervision.classes.tolist() == [2]
    assert times(one.inputs[0]) == [1, 2]
    assert egs.with_frame(example(), 9) is None


def test_weights_and_names() -> None:
    """Posteriors and targets, also compressed ones, are scaled; the output is renamed."""
    dense = ExampleOutput.from_targets("output", [RNG.standard_normal((9, 2))])
    full = attrs.evolve(example(), outputs=[dense])
    packed = egs.with_compression(full)

    assert egs.with_weight(example(), 0.5).outputs[0].supervision.weights.tolist() == [0.5] * 3
    np.testing.assert_allclose(
        egs.with_weight(packed, 2.0).outputs[0].supervision.values,
        2.0 * packed.outputs[0].supervision.values,
        rtol=1e-5,
    )
    assert egs.with_output_name(example(), "output-b").outputs[0].name == "output-b"


@pytest.mark.parametrize("rows", [3, 8, 9, 40])
def test_compressed_rows(rows: int) -> None:
    """Rows of a compressed matrix have its values, repeated beyond its ends."""
    matrix = compressed.compress(RNG.standard_normal((20, 3), dtype=np.float32))
    wanted = matrix.decompressed()[np.clip(np.arange(-2, rows - 2), 0, 19)]

    found = matrix.with_rows(-2, rows)

    assert found.token == ("CM" if rows >= 8 else "CM2")
    np.testing.assert_allclose(found.decompressed(), wanted, atol=0 if rows >= 8 else 1e-4)


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    length=st.integers(1, 150),
    overlap=st.integers(0, 3),
    step=st.sampled_from([1, 3]),
    seed=st.integers(0, 100),
)
def test_chunks(lengths: list[int], length: int, overlap: int, step: int, seed: int) -> None:
    """Chunks have the requested lengths, are in order within the utterance, and weigh 1 in sum."""
    if overlap >= lengths[0]:
        overlap = 0
    options = egs.SplitOptions(
        num_frames=tuple(lengths), num_frames_overlap=overlap, frame_subsampling_factor=step
    )
    splitter = egs.UtteranceSplitter(options, egs.CRandom(seed))

    chunks = splitter.chunks(length)

    allowed = {-(-size // step) * step for size in lengths}
    total = np.zeros(-(-length // step) + 1)
    for chunk in chunks:
        assert chunk.num_frames in allowed
        assert chunk.first_frame % step == 0
        assert chunk.first_frame >= 0
        assert chunk.first_frame + chunk.num_frames < length + step
        first = chunk.first_frame // step
        total[first : first + len(chunk.weights)] += chunk.weights
    starts = [chunk.first_frame for chunk in chunks]
    assert starts == sorted(starts)
    assert np.all(np.isclose(total, 0.0) | np.isclose(total, 1.0))
    assert chunks or length < min(allowed)


def test_made_examples() -> None:
    """A chunk has its context, repeated beyond the ends, its i-vector and its labels."""
    features = np.arange(12, dtype=np.float32).reshape(6, 2)
    utterance = egs.Utterance(
        key="u",
        features=features,
        supervision=egs.posteriors([[(4, 0.5), (1, 0.5), (4, 0.25)]] * 6, 5),
        ivectors=np.array([[1.0], [2.0]], dtype=np.float32),
        ivector_period=3,
    )
    options = egs.SplitOptions(
        num_frames=(3,), left_context=1, right_context=2, left_context_initial=0
    )

    first, second = egs.make_examples(
        utterance, egs.UtteranceSplitter(options, egs.CRandom()), egs.CRandom()
    )

    assert [first.key, second.key] == ["u-0", "u-3"]
    np.testing.assert_array_equal(first.inputs[0].values, features[[0, 1, 2, 3, 4]])
    np.testing.assert_array_equal(second.inputs[0].values, features[[2, 3, 4, 5, 5, 5]])
    assert times(second.inputs[0]) == list(range(-1, 5))
    assert second.inputs[1].values.tolist() in ([[1.0]], [[2.0]])
    packed = attrs.evolve(utterance, ivectors=compressed.compress(utterance.ivectors))
    np.testing.assert_allclose(packed.ivectors, utterance.ivectors, atol=1e-3)
    assert first.outputs[0].supervision.classes.tolist() == [1, 4] * 3
    assert first.outputs[0].supervision.weights.tolist() == [0.5, 0.75] * 3


def test_examples_of_utterances() -> None:
    """Utterances are split in order; those too short for a chunk give none."""
    utterances = [
        egs.Utterance(
            key=key,
            features=np.full((length, 2), length, dtype=np.float32),
            supervision=egs.posteriors([[(0, 1.0)]] * length, 1),
        )
        for key, length in (("long", 6), ("short", 2), ("other", 3))
    ]

    made = list(egs.get_examples(utterances, egs.SplitOptions(num_frames=(3,), left_context=1)))
    packed = list(egs.get_examples(utterances, egs.SplitOptions(num_frames=(3,)), compress=True))

    assert [example.key for example in made] == ["long-0", "long-3", "other-0"]
    assert [example.inputs[0].values[0, 0] for example in made] == [6.0, 6.0, 3.0]
    assert isinstance(packed[0].inputs[0].matrix, CompressedMatrix)
    assert isinstance(egs.get_examples(iter(utterances), egs.SplitOptions()), Iterator)


def test_whole_utterances() -> None:
    """Without given lengths, an utterance is one chunk."""
    splitter = egs.UtteranceSplitter(egs.SplitOptions(num_frames=()), egs.CRandom())

    [chunk] = splitter.chunks(17)

    assert (chunk.first_frame, chunk.num_frames) == (0, 17)


def test_speakers() -> None:
    """Segments are moved to lie within the utterance; short utterances give no example."""
    chunk = egs.parse_ranges(["u 0 3 8 4 1"])["u"][0]
    features = RNG.standard_normal((10, 2), dtype=np.float32)

    made = chunk.example(features, 3)

    assert made.key == "u-8-4-1"
    np.testing.assert_array_equal(made.inputs[0].values, features[6:])
    assert made.outputs[0].supervision.classes.tolist() == [1]
    assert chunk.example(features[:3], 3) is None


def test_labels() -> None:
    """Posteriors and alignments are read as text, even empty frames."""
    reader = TextReader(memoryview(b" [ 3 0.5 1 0.5 ] [ ] [ 2 1 ]\n"), "p")
    assert egs.read_posterior(reader) == [[(3, 0.5), (1, 0.5)], [], [(2, 1.0)]]
    reader = TextReader(memoryview(b"1 2 3\nnext"), "a")
    assert egs.read_alignment(reader).tolist() == [1, 2, 3]
    assert reader.next_is(b"next")


def test_binary_alignments() -> None:
    """In binary, each class has its size in front, as ali-to-pdf of Kaldi writes it."""
    data = b"".join(b"\4" + number.to_bytes(4, "little") for number in (3, 1, 2, 300))
    reader = BinaryReader(memoryview(data), "a")
    assert egs.read_alignment(reader).tolist() == [1, 2, 300]


def test_sparse_matrix_with_doubles() -> None:
    """A sparse matrix can have numbers of double precision."""
    four = b"\4"
    data = (
        b"SM " + four + np.int32(1).tobytes() + b"SV " + four + np.int32(3).tobytes()
        + four + np.int32(1).tobytes() + four + np.int32(2).tobytes()
        + b"\x08" + np.float64(0.1).tobytes()
    )  # fmt: skip

    found = read_stored_matrix(BinaryReader(memoryview(data), "m"))

    np.testing.assert_allclose(found.values, [[0.0, 0.0, 0.1]])


def test_compressed_minibatches() -> None:
    """A merger compresses merged examples on request."""
    merger = ExampleMerger(MinibatchRules.parse("2"), compress=True)

    [merged] = merger.merged([example(), example()])

    assert merged.inputs[0].matrix.shape == (16, 3)
    assert isinstance(merged.inputs[0].matrix, compressed.CompressedMatrix)
    assert isinstance(merged.outputs[0].supervision, SparsePosteriors | DenseTargets)


@pytest.mark.parametrize("rows", [30, 29, 10, 11])
def test_posteriors_with_subsampling(rows: int) -> None:
    """Rows for input frames are taken at the times of the output; rows for output frames, always.

    Missing rows at the end have no classes.
    """
    step = 3 if rows > 20 else 1
    frames = [[(number // step % 50, 1.0)] if number % 2 == 0 else [] for number in range(rows)]
    utterance = egs.Utterance(
        key="a",
        features=np.zeros((30, 2), dtype=np.float32),
        supervision=egs.posteriors(frames, 50),
    )
    splitter = egs.UtteranceSplitter(
        egs.SplitOptions(num_frames=(15,), frame_subsampling_factor=3), egs.CRandom(1)
    )

    first, second = egs.make_examples(utterance, splitter, egs.CRandom(1))

    for example, start in ((first, 0), (second, 5)):
        [output] = example.outputs
        assert output.indexes[:, 1].tolist() == [0, 3, 6, 9, 12]
        known = output.supervision
        found = [known.classes[a:b].tolist() for a, b in itertools.pairwise(known.splits)]
        assert found == [[frame] if frame % 2 == 0 else [] for frame in range(start, start + 5)]


def test_context_at_the_ends_of_time() -> None:
    """Adding context does not wrap times around near the limits of 32 bits."""
    end = 2**31 - 1
    example = TrainingExample(
        inputs=[ExampleInput.from_sequences("input", [np.ones((6, 2))], t_start=end - 5)],
        outputs=[
            ExampleOutput(
                name="output",
                indexes=np.array([[0, end - 1, 0]], np.int32),
                supervision=DenseTargets(values=np.ones((1, 2))),
            )
        ],
    )

    found = egs.with_context(example, left=2, right=3)

    assert found.inputs[0].indexes[:, 1].tolist() == [end - 3, end - 2, end - 1, end]


def test_compression_of_numbers_that_hardly_differ() -> None:
    """Numbers whose percentiles are equal in single precision stay unchanged."""
    values = np.full((12, 3), 1e7, dtype=np.float32)
    values[5, 1] += 1.0

    with np.errstate(all="raise"):
        found = compressed.compress(values)

    assert found.token == "CM"
    np.testing.assert_allclose(found.decompressed(), values, atol=1.0)


@pytest.mark.parametrize(
    ("seed", "numbers"),
    [
        (0, [1804289383, 846930886, 1681692777]),
        (1, [1804289383, 846930886, 1681692777]),
        (5, [590011675, 99788765, 2131925610]),
        (-1, [254925627, 1205188300, 366127624]),
        (-(2**31), [1336741213, 1210407648, 1447044896]),
    ],
)
def test_random_numbers_of_the_c_library(seed: int, numbers: list[int]) -> None:
    """Random numbers are those of the GNU C library, also for negative seeds."""
    random = egs.CRandom(seed)

    assert [random.rand() for _ in numbers] == numbers
    assert sorted(random.permutation(5)) == list(range(5))


@given(st.integers(0, 30), st.integers(0, 12), st.integers(-5, 5))
def test_shuffled_with_a_buffer(count: int, buffer_size: int, seed: int) -> None:
    """Every item is returned once; with one place in the buffer, in order."""
    found = list(egs.shuffled(range(count), egs.CRandom(seed), buffer_size))

    assert sorted(found) == list(range(count))
    if buffer_size == 1:
        assert found == list(range(count))


class Drawn(egs.CRandom):
    """A generator that draws given numbers, and does everything of positive probability."""

    def __init__(self, *numbers: float) -> None:
        super().__init__()
        self._numbers = iter(numbers)

    def uniform(self) -> float:
        """The next of the given numbers."""
        return next(self._numbers)

    def with_probability(self, probability: float) -> bool:
        """Whether the probability is positive."""
        return probability > 0.0


def augmented(image: np.ndarray, rng: egs.CRandom, **options: object) -> np.ndarray:
    """An image (width, height, channels) after a change."""
    augmentation = egs.ImageAugmentation(num_channels=image.shape[2], **options)
    values = image.reshape(len(image), -1)
    given = TrainingExample(inputs=[ExampleInput.from_sequences("input", [values])], outputs=[])
    [found] = augmentation.changed(given, rng).inputs
    np.testing.assert_array_equal(found.indexes, given.inputs[0].indexes)
    return found.values.reshape(image.shape)


IMAGE = np.random.default_rng(0).normal(size=(6, 6, 3)).astype(np.float32)
NO_SHIFT, NO_ROTATION = (0.5, 0.5), (1.0,)


def test_images_are_flipped_and_rotated() -> None:
    """A flip mirrors the first axis, and a rotation by the largest angle turns both."""
    flipped = augmented(IMAGE, Drawn(*NO_SHIFT, *NO_ROTATION), horizontal_flip_prob=1.0)
    np.testing.assert_allclose(flipped, IMAGE[::-1], atol=1e-6)

    turn = {"rotation_degree": 90.0, "rotation_prob": 0.5}
    for number, turns in ((1.0, -1), (0.0, 1)):
        turned = augmented(IMAGE, Drawn(*NO_SHIFT, 0.5, number), **turn)
        np.testing.assert_allclose(turned, np.rot90(IMAGE, turns), atol=1e-5)

    unchanged = augmented(IMAGE, Drawn(*NO_SHIFT, 0.6), **turn)
    np.testing.assert_array_equal(unchanged, IMAGE)


@pytest.mark.parametrize(("fill_mode", "mode"), [("nearest", "edge"), ("reflect", "reflect")])
def test_images_are_shifted(fill_mode: str, mode: str) -> None:
    """Shifts are rounded to pixels; what comes in from outside is as the fill mode says."""
    found = augmented(
        IMAGE,
        Drawn(1.0, 0.25, *NO_ROTATION),
        horizontal_shift=0.25,
        vertical_shift=1.0 / 3.0,
        fill_mode=fill_mode,
    )

    padded = np.pad(IMAGE, [(2, 2), (2, 2), (0, 0)], mode=mode)
    np.testing.assert_allclose(found, padded[4:, 1:7], atol=1e-6)


def test_images_halfway_between_pixels() -> None:
    """A pixel from between four pixels is their mean; a single row is its own reflection."""
    image = np.arange(8, dtype=np.float32).reshape(1, 8, 1)
    turned = augmented(
        image,
        Drawn(*NO_SHIFT, 0.5, 1.0),
        rotation_degree=90.0,
        rotation_prob=1.0,
        fill_mode="reflect",
    )

    np.testing.assert_allclose(turned, np.full((1, 8, 1), 3.5), atol=1e-5)


def test_examples_of_whole_matrices() -> None:
    """Rows are t = 0, 1, ...; the names tell inputs from outputs, and matrices keep their form."""
    labels = SparsePosteriors.from_labels([2], 4)
    made = egs.example_of_matrices("a", [("input", IMAGE[..., 0]), ("output", labels)])

    assert made.key == "a"
    assert times(made.inputs[0]) == list(range(6))
    assert made.outputs[0].supervision is labels
    np.testing.assert_array_equal(made.inputs[0].values, IMAGE[..., 0])
