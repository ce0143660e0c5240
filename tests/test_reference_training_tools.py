"""Our tools, run with Kaldi's command lines for training the digits: figures and files agree.

Kaldi's logs tell on which minibatches it applied constraints; its draws tell when it repaired
units.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import nnet3_training
import numpy as np
import pytest
from nnet3_descriptors import Nnet, read_acoustic_model, read_nnet, vectorize
from nnet3_runtime_cuda import DeviceError
from nnet3_runtime_cuda.kernels import Kernel
from nnet3_tables import read_table
from nnet3_training import Trainer
from nnet3_training.egs import CRandom
from reference_cases import DIGITS_EXAMPLE, DIGITS_REFERENCE, REFERENCE, kaldi_commands
from test_reference_training import KaldiTrainer, decisions
from tool_commands import said_by

TRAINING = REFERENCE / "training"
COMMANDS = kaldi_commands(TRAINING)

NUMBER = re.compile(r"(?<![\w.])-?(?:\d+(?:\.\d+)?(?:e-?\d+)?|inf|nan)(?![\w])")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The current folder has the inputs of the command lines, and these find the tools."""
    folder = tmp_path / "training"
    shutil.copytree(TRAINING, folder, ignore=shutil.ignore_patterns("*.log"))
    shutil.copytree(DIGITS_REFERENCE, tmp_path / "digits")
    shutil.copy(DIGITS_EXAMPLE / "final.raw", tmp_path / "digits")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")


def run(name: str, *options: str, status: int = 0) -> str:
    """What a tool says of a command line of this name, with more options."""
    return said_by(" ".join([COMMANDS[name], *options]), status=status)


def figures(text: str) -> list[tuple[str, list[float]]]:
    """The lines of a log about objectives and parameters: words and numbers of each."""
    found = []
    for line in text.splitlines():
        message = re.sub(r"^LOG \(.*?\) ", "", line)
        if line.startswith("LOG") and not re.search(r"seconds taken|orphan|egs types|egs of", line):
            numbers = [float(match) for match in NUMBER.findall(message)]
            found.append((NUMBER.sub("#", message), numbers))
    return found


@pytest.mark.parametrize("name", ["prob.initial", "prob.final", "progress", "combine"])
def test_diagnostics(name: str) -> None:
    """Each line about objectives, accuracies and parameters has Kaldi's words and figures."""
    found = figures(run(name))

    wanted = figures((TRAINING / f"{name}.log").read_text())
    assert [words for words, _ in found] == [words for words, _ in wanted]
    for (_, mine), (words, theirs) in zip(found, wanted, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-6), words


def test_lines_that_scripts_read() -> None:
    """Lines with objectives name the place in Kaldi's source that its scripts look for."""
    log = run("prob.final")

    place = r"LOG \(nnet3-compute-prob:PrintTotalStats\(\):nnet-diagnostics\.cc:\d+\)"
    for what in ("log-likelihood", "accuracy"):
        assert re.search(rf"^{place} Overall {what} for 'output' is -?[\d.]+ per frame", log, re.M)


def test_accuracy_of_each_class() -> None:
    """nnet3-show-progress prints it, too, at each point between the networks."""
    log = run("progress", "--compute-per-dim-accuracy", "--num-segments=2")

    vectors = re.findall(r"per-dim accuracy vector for 'output' is  \[ (.*) \]", log)
    assert [len(vector.split()) for vector in vectors] == [11, 11]
    assert all(-1.0 <= float(share) <= 1.0 for share in " ".join(vectors).split())


@pytest.mark.parametrize("name", ["combine", "from-egs", "progress"])
def test_use_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --use-gpu=yes the network goes to a CUDA device."""

    def refuse(_: Nnet, *, device: str, **__: object) -> None:
        raise DeviceError(device)

    monkeypatch.setattr(nnet3_training.evaluation, "DeviceNnet", refuse)

    assert run(name, "--use-gpu=yes", status=255).endswith(": cuda\n")


def test_combined_network() -> None:
    """The average and its batch-norm statistics are Kaldi's."""
    kaldi = read_nnet(TRAINING / "combine.raw")
    Path("combine.raw").unlink()

    run("combine")

    ours = read_nnet("combine.raw")
    np.testing.assert_allclose(vectorize(ours), vectorize(kaldi), rtol=1e-5, atol=1e-6)
    for name in ("tdnn1.batchnorm", "tdnn4.batchnorm"):
        mine, theirs = ours.component(name), kaldi.component(name)
        assert mine.count == theirs.count
        np.testing.assert_allclose(mine.stats_mean, theirs.stats_mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(mine.stats_var, theirs.stats_var, rtol=1e-3, atol=1e-5)


def test_training_on() -> None:
    """From a trained network, the objectives of all minibatches and the parameters are Kaldi's."""
    check_objectives(run("train.more"), "train.more", tolerance=1e-3)

    assert distance("train.more") < 1e-2


def test_training_with_l2(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same from an untrained network, with momentum, l2 and Kaldi's random decisions.

    The random numbers are those of the runs in tests/reference/digits.
    """
    script = decisions()
    monkeypatch.setattr(Kernel, "chance", lambda *_: next(script)[1])
    monkeypatch.setattr(Trainer, "is_constrained", KaldiTrainer.is_constrained)

    check_objectives(run("train.l2"), "train.l2", tolerance=1e-3)

    assert distance("train.l2") < 1e-2
    assert next(script, None) is None


DRAWN_BEFORE = 1858
"""Random numbers that Kaldi draws before its first minibatch, most of them for compiling."""
PASS = 15
"""Random numbers that Kaldi draws for a minibatch: four in the forward pass (whether to store the
statistics of each ReLU), nine in the backward pass (whether to store the softmax's; for each ReLU,
from the last, whether to repair it and whether to store its statistics), and two after it."""


def backstitch_draws() -> list[tuple[list[int], bool]]:
    """Kaldi's draws in each pass over a minibatch, and whether the constraint follows.

    For a step back, a minibatch has two passes, which begin with the same seed. After each pass,
    one number less is drawn: in the step back none for l2, in the step ahead none for the
    constraint.
    """
    random = CRandom(1)
    numbers = [random.rand() for _ in range(DRAWN_BEFORE + PASS)]
    seed = numbers[0] % 100_001
    passes = [(numbers[DRAWN_BEFORE:], True)]
    for minibatch in (1, 3, 5):
        for is_constrained in (True, False):
            random = CRandom(seed + minibatch)
            passes.append(([random.rand() for _ in range(PASS - 1)], is_constrained))
        passes.append(([random.rand() for _ in range(PASS)], True))
    return passes[:-1]


def backstitch_decisions() -> Iterator[bool]:
    """Kaldi's decisions; the first minibatch stores all statistics, whatever the draws."""
    for number, (drawn, _) in enumerate(backstitch_draws()):
        forward, softmax, backward = drawn[:4], drawn[4], drawn[5:13]
        if number:
            yield from (each % 2 != 0 for each in forward)
            yield softmax % 4 != 0
        for repair, keep in zip(backward[::2], backward[1::2], strict=True):
            yield (repair + 1.0) / (2.0**31 + 1.0) <= 0.5
            if number:
                yield keep % 4 != 0


@pytest.fixture
def decided_as_kaldi(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes trainers repair units, store statistics and apply constraints when Kaldi did."""
    script = backstitch_decisions()
    constrained = [drawn[-1] % 4 == 0 for drawn, follows in backstitch_draws() if follows]
    monkeypatch.setattr(Kernel, "chance", lambda *_: next(script))
    monkeypatch.setattr(Trainer, "is_constrained", lambda self, _, number: constrained[number])
    yield
    assert next(script, None) is None


@pytest.mark.usefixtures("decided_as_kaldi")
def test_backstitch() -> None:
    """The objectives before and between steps back and ahead, and the parameters, are Kaldi's."""
    check_objectives(run("train.backstitch.on"), "train.backstitch.on", tolerance=1e-4)

    assert distance("train.backstitch.on") < 1e-4


@pytest.mark.usefixtures("decided_as_kaldi")
def test_backstitch_of_a_new_network() -> None:
    """From a network without derivatives at first, the first four objectives are Kaldi's.

    Its natural gradient starts from rounding errors, so Kaldi itself varies: with other kernels of
    OpenBLAS, its fifth objective is from -1.0754 to -1.0787.
    """
    check_objectives(run("train.backstitch"), "train.backstitch", tolerance=1e-4, first=4)


def check_objectives(log: str, name: str, *, tolerance: float, first: int | None = None) -> None:
    """Compares the objectives of a log with Kaldi's: all, or the first ones."""
    found, wanted = (objectives(text) for text in (log, (TRAINING / f"{name}.log").read_text()))
    assert found.keys() == wanted.keys()
    for key in list(wanted)[:first]:
        assert found[key] == pytest.approx(wanted[key], abs=tolerance), key


def distance(name: str) -> float:
    """The distance of the parameters from Kaldi's, relative to their norm."""
    ours, kaldi = (vectorize(read_nnet(path / f"{name}.raw")) for path in (Path(), TRAINING))
    return float(np.linalg.norm(ours - kaldi) / np.linalg.norm(kaldi))


def objectives(text: str) -> dict[str, float]:
    """The objectives of a log, by the words before each."""
    pairs = re.findall(r"(?:Average|Overall average) (objective.*?) is (-?[\d.e-]+) over", text)
    return {words: float(value) for words, value in pairs}


def test_outputs() -> None:
    """The outputs for examples are Kaldi's."""
    wanted = dict(read_table(f"ark:{TRAINING / 'from-egs.ark'}"))
    Path("from-egs.ark").unlink()

    assert "Processed 48 examples." in run("from-egs")

    found = dict(read_table("ark:from-egs.ark"))
    assert list(found) == list(wanted)
    for key, values in wanted.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-3, atol=1e-3)


def test_lda_statistics() -> None:
    """The statistics are Kaldi's, number by number."""
    wanted = (TRAINING / "lda.acc").read_bytes()
    Path("lda.acc").unlink()

    assert "soft frame count = 377.5" in run("lda")

    found = Path("lda.acc").read_bytes()
    assert len(found) == len(wanted)
    start = wanted.index(b"FV ") + 8
    assert found[:start] == wanted[:start]
    counts = np.frombuffer(wanted, dtype="<f4", count=11, offset=start)
    np.testing.assert_array_equal(np.frombuffer(found, "<f4", 11, start), counts)
    for token, size in ((b"FM ", 121), (b"FP ", 66)):
        start = wanted.index(token) + (13 if token == b"FM " else 8)
        mine, theirs = (np.frombuffer(data, "<f4", size, start) for data in (found, wanted))
        # All outputs are equal, so the squares within classes are rounding errors.
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-9)


def test_priors() -> None:
    """The model is Kaldi's, and so are the log lines about the change."""
    wanted = read_acoustic_model(TRAINING / "priors.mdl")
    Path("priors.mdl").unlink()

    found = figures(run("priors"))

    model = read_acoustic_model("priors.mdl")
    np.testing.assert_allclose(model.priors, wanted.priors, rtol=1e-6)
    np.testing.assert_array_equal(vectorize(model.nnet), vectorize(wanted.nnet))
    assert model.transition_model == wanted.transition_model
    assert found == figures((TRAINING / "priors.log").read_text())
