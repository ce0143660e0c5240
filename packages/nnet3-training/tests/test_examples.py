"""Training examples: merging to minibatches, and reading Kaldi's archives."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from example_cases import example_of
from nnet3_descriptors import ModelFileError, Nnet
from nnet3_descriptors.values import is_frozen
from nnet3_training import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    SparsePosteriors,
    Trainer,
    TrainingExample,
    merge_examples,
    minibatches,
    read_examples,
    write_examples,
)
from small_networks import network, stacked

NNET = network(stacked(2, "c Affine input-dim=2 output-dim=3"))

MASKED = np.ma.masked_array(np.ones((2, 2)), mask=np.eye(2))


def labelled(frames: int, label: int) -> TrainingExample:
    """One sequence of frames with the same label; inputs begin one frame before the outputs."""
    return TrainingExample(
        inputs=[
            ExampleInput.from_sequences("input", [np.full((frames + 1, 2), label)], t_start=-1)
        ],
        outputs=[ExampleOutput.from_labels("output", [[label] * frames], 3)],
    )


def test_merged_examples() -> None:
    """Each example becomes a sequence; rows and their supervision stay together."""
    merged = merge_examples([labelled(2, 1), labelled(2, 2)])

    assert merged.inputs[0].indexes.tolist() == [[n, t, 0] for n in range(2) for t in (-1, 0, 1)]
    assert merged.outputs[0].indexes.tolist() == [[n, t, 0] for n in range(2) for t in range(2)]
    np.testing.assert_array_equal(merged.inputs[0].values[:, 0], [1, 1, 1, 2, 2, 2])
    assert merged.outputs[0].supervision.classes.tolist() == [1, 1, 2, 2]
    assert merged.num_sequences == 2


def test_merged_targets() -> None:
    """Dense targets are stacked."""
    parts = [example_of([np.zeros((1, 2))], [[[value, 0.0, 0.0]]]) for value in (1.0, 2.0)]

    np.testing.assert_array_equal(
        merge_examples(parts).outputs[0].supervision.values, [[1, 0, 0], [2, 0, 0]]
    )


def test_examples_do_not_follow_the_caller() -> None:
    """Examples are values: what the caller writes to its arrays afterwards is not in them."""
    frames, weights = np.zeros((2, 3), np.float32), np.ones(2, np.float32)
    indexes = np.array([[0, 0, 0], [0, 1, 0]], np.int32)
    given = ExampleInput(name="input", indexes=indexes, values=frames)
    targets = DenseTargets(values=frames)
    posteriors = SparsePosteriors(dim=3, splits=[0, 1, 2], classes=[0, 1], weights=weights)
    frames[:], weights[:], indexes[:] = 5, 5, 5

    assert given.values.max() == 0
    assert given.indexes[:, 1].tolist() == [0, 1]
    assert targets.values.max() == 0
    assert posteriors.weights.tolist() == [1, 1]


def unpickled(value: Any) -> Any:
    """A value as it arrives in another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301, bytes of our own


@pytest.mark.parametrize("copied", [copy.deepcopy, unpickled])
def test_copies_are_as_frozen(copied: Callable[[Any], Any]) -> None:
    """Nobody can write to the arrays of a copy, or of an example from another process."""
    dense = copied(example_of([np.zeros((1, 2))], [[[1.0, 0.0, 0.0]]]))
    sparse = copied(labelled(2, 1)).outputs[0]
    arrays = [
        *(array for io in dense.inputs for array in (io.indexes, io.values)),
        dense.outputs[0].supervision.matrix,
        sparse.indexes,
        sparse.supervision.splits,
        sparse.supervision.classes,
        sparse.supervision.weights,
    ]

    assert all(map(is_frozen, arrays))
    assert sparse.supervision.classes.tolist() == [1, 1]


def test_minibatches_have_one_shape() -> None:
    """Full groups are returned at once, the rest at the end, and no example is lost."""
    lengths = [3, 2, 3, 2, 3, 2, 3]
    batches = list(minibatches((labelled(n, 0) for n in lengths), 2))

    sizes = [(len(b.outputs[0].indexes) // b.num_sequences, b.num_sequences) for b in batches]
    assert sizes == [(3, 2), (2, 2), (3, 2), (2, 1)]


def test_repr_of_examples() -> None:
    """The repr of an example shows the shapes of its arrays, not their values."""
    text = repr(labelled(200, 1))

    assert "matrix=<float32 (201, 2)>" in text
    assert len(text) < 500


# ---- archives ----


def integer(value: int) -> bytes:
    """A 32-bit integer as in Kaldi's binary files."""
    return b"\4" + struct.pack("<i", value)


def archive() -> bytes:
    """An example with an i-vector at t = 300, n = 0, and two rows of posteriors."""
    matrix = b"FM " + integer(2) + integer(2) + np.arange(4, dtype="<f4").tobytes()
    far = bytes([127]) + integer(0) + integer(300) + integer(0)
    row = b"SV " + integer(3) + integer(1) + integer(2) + b"\4" + struct.pack("<f", 0.5)
    empty = b"SV " + integer(3) + integer(0)
    return (
        b"key \0B<Nnet3Eg> <NumIo> " + integer(2)
        + b"<NnetIo> input <I1V> " + integer(2) + far + bytes([256 - 2]) + matrix + b"</NnetIo> "
        + b"<NnetIo> output <I1V> " + integer(2) + bytes([0, 3])
        + b"SM " + integer(2) + row + empty + b"</NnetIo> </Nnet3Eg> "
    )  # fmt: skip


def test_archive(tmp_path: Path) -> None:
    """Both forms of indexes, and full and sparse matrices, are read from several examples."""
    path = tmp_path / "egs.ark"
    path.write_bytes(archive() * 2)

    first, second = read_examples(path, NNET)

    assert first.key == second.key == "key"
    assert first.inputs[0].indexes.tolist() == [[0, 300, 0], [0, 298, 0]]
    np.testing.assert_array_equal(first.inputs[0].values, [[0, 1], [2, 3]])
    assert first.outputs[0].indexes.tolist() == [[0, 0, 0], [0, 3, 0]]
    posteriors = first.outputs[0].supervision
    assert posteriors.shape == (2, 3)
    assert posteriors.rows.tolist() == [0]
    assert posteriors.classes.tolist() == [2]
    assert posteriors.weights.tolist() == [0.5]


def test_empty_archive(tmp_path: Path) -> None:
    """An empty archive has no examples."""
    path = tmp_path / "egs.ark"
    path.touch()

    assert list(read_examples(path, NNET)) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_archive_from_a_named_pipe(tmp_path: Path) -> None:
    """A pipe, which has no size, is read to its end."""
    path = tmp_path / "egs.fifo"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(archive() * 2000,), daemon=True)
    writer.start()

    examples = list(read_examples(path, NNET))

    writer.join()
    assert len(examples) == 2000
    assert examples[-1].inputs[0].indexes.tolist() == [[0, 300, 0], [0, 298, 0]]


def test_truncated_archives(tmp_path: Path) -> None:
    """An archive cut off anywhere gives one error."""
    path = tmp_path / "egs.ark"
    whole = archive()
    for size in range(1, len(whole) - 1):
        path.write_bytes(whole[:size])

        with pytest.raises(ModelFileError):
            list(read_examples(path, NNET))


def test_keys_in_utf8(tmp_path: Path) -> None:
    """A key may have any characters but blanks, and 4,096 bytes; it is read as it was written."""
    keys = ["ü1", "话者-2", "x" * 4096]
    examples = [attrs.evolve(labelled(2, 1), key=key) for key in keys]
    write_examples(examples, tmp_path / "egs.ark")

    assert [example.key for example in read_examples(tmp_path / "egs.ark")] == keys


def test_parts_are_named_alike() -> None:
    """Inputs and outputs have their matrix as it is stored, and its values."""
    labels, targets = [[1, -1, 0]], np.arange(6.0).reshape(3, 2)
    parts = (
        ExampleInput.from_sequences("input", [targets]),
        ExampleOutput.from_targets("output", [targets]),
        ExampleOutput.from_labels("output", labels, 2),
    )

    for part in parts[:2]:
        assert isinstance(part.matrix, np.ndarray)
        np.testing.assert_array_equal(part.values, targets)
    assert parts[2].matrix is parts[2].supervision
    np.testing.assert_array_equal(parts[2].values, [[0, 1], [0, 0], [1, 0]])


# ---- documented errors ----

LABELS = ExampleOutput.from_labels("output", [[0, 1, 2]], 3)
FRAMES = ExampleInput.from_sequences("input", [np.ones((3, 4))])


def nnet(line: str = "") -> Nnet:
    """An affine map with further fields."""
    return network(stacked(4, f"c Affine input-dim=4 output-dim=3 {line}"))


def example(**changes: tuple[object, ...]) -> TrainingExample:
    """One sequence with labels."""
    return TrainingExample(**({"inputs": [FRAMES], "outputs": [LABELS]} | changes))


def inputs(dim: int) -> tuple[ExampleInput, ...]:
    """The frames of the example with another dimension."""
    return (ExampleInput.from_sequences("input", [np.ones((3, dim))]),)


@pytest.mark.parametrize(
    ("documented", "errors"),
    [
        (Trainer.__init__, "TrainingError DeviceError RunError"),
        (Trainer.train_minibatch, "RequestError RunError UnsupportedComponentError"),
        (TrainingExample.request, "RequestError"),
        (ExampleInput, "ExampleError"),
        (ExampleInput.from_sequences, "ExampleError"),
        (ExampleOutput.from_targets, "ExampleError"),
        (ExampleOutput.from_labels, "ExampleError"),
        (DenseTargets, "ExampleError"),
        (SparsePosteriors, "ExampleError"),
        (merge_examples, "ExampleError"),
    ],
)
def test_documented_errors(documented: object, errors: str) -> None:
    """A docstring names the errors that errors.txt has for wrong arguments."""
    named = inspect.getdoc(documented).partition("Raises:")[2]

    assert [error for error in errors.split() if error not in named] == []
