"""Transforms of features from statistics by class, beside their definition."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
import pytest
from nnet3_descriptors.files import new_writer, open_reader, read_matrix
from nnet3_tools.training.lda_stats import LdaStats
from nnet3_training import SparsePosteriors
from tool_runs import run_tool

TOOL = "nnet-get-feature-transform"

CLASSES, DIM, FRAMES = 7, 5, 300


@attrs.frozen(eq=False)
class Frames:
    """Frames with classes, and their covariances by the definition.

    Attributes:
        values: (FRAMES, DIM).
        labels: (FRAMES,).
    """

    values: np.ndarray
    labels: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """(DIM,), of all frames."""
        return self.values.mean(axis=0)

    @property
    def within(self) -> np.ndarray:
        """(DIM, DIM), the covariance of frames about the means of their classes."""
        means = [self.values[self.labels == label].mean(axis=0) for label in range(CLASSES)]
        apart = self.values - np.array(means)[self.labels]
        return apart.T @ apart / FRAMES

    @property
    def between(self) -> np.ndarray:
        """(DIM, DIM), the covariance of the means of classes, one for each frame."""
        return np.cov(self.values.T, bias=True) - self.within

    def usual_lda(self) -> tuple[np.ndarray, np.ndarray]:
        """(DIM,) and (DIM, DIM): variances between classes, and rows of the transform.

        By way of the symmetric root of the covariance within classes: W^(-1/2) B W^(-1/2) = V D V^T
        has the same eigenvalues, and the rows are V^T W^(-1/2).
        """
        sizes, vectors = np.linalg.eigh(self.within)
        root = vectors @ np.diag(sizes**-0.5) @ vectors.T
        variances, turned = np.linalg.eigh(root @ self.between @ root)
        return variances[::-1], (turned.T @ root)[::-1]


@pytest.fixture
def frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Frames:
    """Frames whose statistics are in the current folder."""
    monkeypatch.chdir(tmp_path)
    return frames_with_statistics()


def frames_with_statistics() -> Frames:
    """Frames whose statistics are in the file stats of the current folder, and in halves there."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, FRAMES)
    mixing = rng.standard_normal((DIM, DIM))
    values = (
        rng.standard_normal((FRAMES, DIM)) @ mixing
        + 3.0 * rng.standard_normal((CLASSES, DIM))[labels]
    )
    values = values.astype(np.float32)
    half = FRAMES // 3
    for name, part in (("stats", slice(None)), ("a", slice(half)), ("b", slice(half, None))):
        stats = LdaStats(CLASSES, DIM)
        known = SparsePosteriors.from_labels(labels[part], CLASSES)
        stats.add(values[part], known, 0.0, rng)
        save(stats, name)
    return Frames(values.astype(np.float64), labels)


def save(stats: LdaStats, name: str, *, binary: bool = True) -> None:
    """Writes statistics."""
    writer = new_writer(binary=binary)
    stats.write(writer)
    writer.store(name)


def transform(*arguments: str) -> np.ndarray:
    """The matrix that the tool writes, without limits unless they are given."""
    run_tool(TOOL, "--max-singular-value=0", *arguments, expected=0)
    return read_matrix(next(each for each in arguments if not each.startswith("--")))


def same_rows(found: np.ndarray, wanted: np.ndarray) -> None:
    """Asserts that rows agree up to their signs, which nothing decides."""
    signs = np.sign((found * wanted).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found * signs, wanted, rtol=1e-3, atol=1e-4)


def test_usual_lda(frames: Frames) -> None:
    """With the factor 1, rows are those of LDA: the variance within classes is 1."""
    found = transform("--within-class-factor=1", "--remove-offset=false", "out", "stats")

    variances, wanted = frames.usual_lda()
    same_rows(found, wanted)
    np.testing.assert_allclose(found @ frames.within @ found.T, np.eye(DIM), atol=1e-3)
    np.testing.assert_allclose(
        found @ frames.between @ found.T, np.diag(variances), atol=1e-3 * variances[0]
    )


def test_rows_are_small_where_classes_hardly_differ(frames: Frames) -> None:
    """By default each row is scaled by its variance between classes; a column removes the mean."""
    found = transform("--within-class-factor=0.01", "--dim=3", "out", "stats")

    variances, rows = frames.usual_lda()
    scales = np.sqrt((0.01 + variances) / (1.0 + variances))
    wanted = (scales[:, None] * rows)[:3]
    same_rows(found, np.column_stack([wanted, -wanted @ frames.mean]))
    moved = np.column_stack([frames.values, np.ones(FRAMES)]) @ found.T
    np.testing.assert_allclose(moved.mean(axis=0), np.zeros(3), atol=1e-4)


def test_singular_values_are_limited(frames: Frames) -> None:
    """Larger singular values become the limit; others stay."""
    free = transform("--remove-offset=false", "free", "stats").astype(np.float64)
    sizes = np.linalg.svd(free, compute_uv=False)
    limit = float(sizes[1:3].mean())

    done = run_tool(TOOL, "--remove-offset=false", f"--max-singular-value={limit}", "out", "stats")

    found = np.linalg.svd(read_matrix("out").astype(np.float64), compute_uv=False)
    np.testing.assert_allclose(found, np.minimum(sizes, limit), rtol=1e-4)
    assert (
        f"Applied ceiling to 2 out of {DIM} singular values of transform using ceiling "
        f"{limit:g}, max is {sizes[0]:.6g}\n"
    ) in done.stderr


def test_log(frames: Frames) -> None:
    """The log lines are Kaldi's."""
    done = run_tool(TOOL, "--dim=2", "--max-singular-value=0", "out", "stats")

    variances, _ = frames.usual_lda()
    lines = [line.removeprefix("LOG (nnet-get-feature-transform) ") for line in
             done.stderr.splitlines() if line]  # fmt: skip
    assert lines[0] == "Data count is 300"
    listed = lines[1].removeprefix("LDA singular values are  [ ").removesuffix(" ]")
    np.testing.assert_allclose([*map(float, listed.split())], variances, rtol=1e-4)
    assert float(lines[2].removeprefix("Sum of all singular values is ")) == pytest.approx(
        variances.sum(), rel=1e-4
    )
    assert float(lines[3].removeprefix("Sum of selected singular values is ")) == pytest.approx(
        variances[:2].sum(), rel=1e-4
    )
    assert len(lines) == 4


def test_several_files_and_forms(frames: Frames) -> None:
    """Statistics of several files are added, binary or text; so are other outputs written."""
    stats = LdaStats.read(open_reader("b"))
    save(stats, "b.txt", binary=False)
    together = transform("--write-cholesky=c", "--write-within-covar=w", "out", "a", "b.txt")

    np.testing.assert_allclose(together, transform("whole", "stats"), rtol=1e-3, atol=1e-4)
    within = open_reader("w").symmetric_matrix()
    factor = np.tril(open_reader("c").symmetric_matrix())
    np.testing.assert_allclose(within, frames.within, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(factor @ factor.T, within, rtol=1e-4, atol=1e-5)


def test_singular_covariance(frames: Frames) -> None:
    """If a column is constant, a thousandth of the average variance is added to variances."""
    stats = LdaStats(CLASSES, DIM + 1)
    known = SparsePosteriors.from_labels(frames.labels, CLASSES)
    rows = np.column_stack([frames.values, np.zeros(FRAMES)]).astype(np.float32)
    stats.add(rows, known, 0.0, np.random.default_rng(0))
    save(stats, "flat")

    done = run_tool(TOOL, "--write-within-covar=w", "out", "flat")

    added = 1e-3 * np.trace(frames.within) / (DIM + 1)
    assert f"so adding {added:.4g}"[:-1] in done.stderr
    within = open_reader("w").symmetric_matrix()
    assert within[-1, -1] == pytest.approx(added, rel=1e-3)


@pytest.mark.usefixtures("frames")
def test_sums_that_are_infinite() -> None:
    """Statistics of infinite sums give no transform, and the tool says so without a warning."""
    stats = LdaStats(CLASSES, DIM)
    stats.counts[:] = 1.0
    stats.sums[:] = np.inf
    with np.errstate(invalid="ignore"):
        save(stats, "infinite")

    done = run_tool(TOOL, "out", "infinite", expected=255)

    assert done.stderr.endswith("the covariances of the statistics are not finite\n")
    assert "invalid value" not in done.stderr
