"""The tools that make examples of images and change them."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from nnet3_tables import write_table
from nnet3_training import SparsePosteriors, read_examples, write_examples
from nnet3_training.egs import example_of_matrices
from tool_runs import run_tool

augment_image = functools.partial(run_tool, "nnet3-egs-augment-image")
get_egs_simple = functools.partial(run_tool, "nnet3-get-egs-simple")


def images(count: int) -> dict[str, np.ndarray]:
    """Images of 6 by 5 pixels with two channels."""
    rng = np.random.default_rng(0)
    return {f"image{n}": rng.normal(size=(6, 10)).astype(np.float32) for n in range(count)}


def test_simple_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example has the whole matrices of its key; one without its label is left out."""
    monkeypatch.chdir(tmp_path)
    with write_table("ark:images.ark") as table:
        for key, image in images(3).items():
            table.write(key, image)
    Path("labels.txt").write_text(
        "image2 rows=1 dim=4 [ 3 1 ]\nother rows=1 dim=4 [ 0 1 ]\nimage0 rows=1 dim=4 [ 1 0.5 ]\n",
        encoding="utf-8",
    )

    tables = "input=ark:images.ark", "output=ark:labels.txt", "ark:out.egs"
    done = get_egs_simple(*tables, expected=0)

    assert done.stderr.splitlines() == [
        "WARNING (nnet3-get-egs-simple) Could not find input for key image1 for io-name=output",
        "WARNING (nnet3-get-egs-simple) 1 utterances had errors and could not be processed.",
    ]
    found = list(read_examples(tmp_path / "out.egs"))
    assert [example.key for example in found] == ["image0", "image2"]
    np.testing.assert_array_equal(found[1].inputs[0].values, images(3)["image2"])
    assert found[1].inputs[0].indexes.tolist() == [[0, t, 0] for t in range(6)]
    labels = found[1].outputs[0].supervision
    assert isinstance(labels, SparsePosteriors)
    assert (labels.dim, labels.classes.tolist(), labels.weights.tolist()) == (4, [3], [1.0])


def test_augmented_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the images are mirrored, the same ones for the same seed; indexes stay."""
    monkeypatch.chdir(tmp_path)
    given = [example_of_matrices(*each) for each in named_images(40)]
    write_examples(given, "in.egs")
    options = "--num-channels=2", "--horizontal-flip-prob=0.5", "--srand=3"

    done = augment_image(*options, "ark:in.egs", "ark:out.egs", expected=0)
    augment_image(*options, "ark:in.egs", "ark:again.egs", expected=0)

    assert "Perturbed 40 neural-network training images." in done.stderr
    assert Path("out.egs").read_bytes() == Path("again.egs").read_bytes()
    flips = 0
    for before, after in zip(given, read_examples("out.egs"), strict=True):
        assert after.key == before.key
        values, image = after.inputs[0].values, before.inputs[0].values
        is_flipped = not np.array_equal(values, image)
        np.testing.assert_allclose(values, image[::-1] if is_flipped else image, atol=1e-6)
        np.testing.assert_array_equal(after.inputs[0].indexes, before.inputs[0].indexes)
        flips += is_flipped
    assert 10 <= flips <= 30


def named_images(count: int) -> list[tuple[str, list[tuple[str, np.ndarray]]]]:
    """Keys, and the matrices of examples of images."""
    label = np.ones((1, 1), dtype=np.float32)
    return [(key, [("input", image), ("output", label)]) for key, image in images(count).items()]
