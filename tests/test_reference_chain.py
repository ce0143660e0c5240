"""Chain models against Kaldi: files, merged supervisions, objectives, derivatives, evaluation."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_reference import chain_case, check_result, parametrize_chain_cases
from nnet3_descriptors import read_nnet, vectorize
from nnet3_descriptors.files import read_vector
from nnet3_training import (
    ChainOptions,
    ChainSupervision,
    ChainTraining,
    Objective,
    Trainer,
    TrainerOptions,
    compute_chain_prob,
    minibatches,
    read_chain_examples,
    read_chain_supervision,
    read_fst,
    write_chain_supervision,
)
from nnet3_training.chain.examples import example_bytes, read_chain_example
from nnet3_training.chain.fsts.files import vector_bytes
from nnet3_training.chain.supervision import state_times
from nnet3_training.egs import CRandom
from nnet3_training.egs.files import entries_of
from nnet3_training.recipes import RecipeOptions, train_recipe
from reference_cases import CHAIN_REFERENCE

DIGITS = CHAIN_REFERENCE / "digits"
FSTS = sorted(CHAIN_REFERENCE.glob("**/*.fst"))
SUPERVISIONS = sorted(CHAIN_REFERENCE.glob("random/*/*.bin"))
PROPERTIES = slice(34, 42)
"""Bytes of a vector FST's header with known properties of the FST, which can be incomplete."""


def name(path: Path) -> str:
    """The name of a file within the names of tests."""
    return str(path.relative_to(CHAIN_REFERENCE))


@pytest.mark.parametrize("path", FSTS, ids=name)
def test_fsts(path: Path) -> None:
    """FSTs are written as OpenFst wrote them, except for the header's known properties."""
    data = path.read_bytes()
    written = bytearray(vector_bytes(read_fst(path)))

    # Each property has two bits; they agree if both sides know it.
    known, ours = (int.from_bytes(each[PROPERTIES], "little") >> 16 for each in (data, written))
    holds = 0x5555_5555_5555
    assert not (known & holds) & (ours >> 1) & holds
    assert not (ours & holds) & (known >> 1) & holds
    written[PROPERTIES] = data[PROPERTIES]
    assert written == data


@pytest.mark.parametrize("path", SUPERVISIONS, ids=name)
def test_supervisions(path: Path, tmp_path: Path) -> None:
    """Supervisions are written byte by byte as Kaldi wrote them, and have the stated frames."""
    supervision = read_chain_supervision(path)
    write_chain_supervision(supervision, tmp_path / "sup")

    assert (tmp_path / "sup").read_bytes() == path.read_bytes()
    assert state_times(supervision.fst)[-1] == supervision.num_frames


@parametrize_chain_cases
def test_supervisions_in_text(folder: Path, tmp_path: Path) -> None:
    """A supervision in text equals that in binary, and is written as Kaldi wrote it."""
    text = read_chain_supervision(folder / "supervision.txt")
    binary = read_chain_supervision(folder / "supervision.bin")
    write_chain_supervision(text, tmp_path / "sup", binary=False)

    assert (tmp_path / "sup").read_bytes() == (folder / "supervision.txt").read_bytes()
    np.testing.assert_array_equal(text.fst.labels, binary.fst.labels)
    np.testing.assert_array_equal(text.fst.destinations, binary.fst.destinations)
    np.testing.assert_allclose(text.fst.costs, binary.fst.costs, rtol=1e-6)


@parametrize_chain_cases
def test_merged_supervisions(folder: Path) -> None:
    """Merged sequences give the FST that Kaldi merged them to, state by state."""
    merged = read_chain_supervision(folder / "supervision.bin")
    parts = [read_chain_supervision(path) for path in sorted(folder.glob("single*.bin"))]

    assert ChainSupervision.merged(parts).fst.equals(merged.fst)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@parametrize_chain_cases
def test_objective(folder: Path, dtype: type) -> None:
    """Objective, l2 term, derivatives and initial probabilities are Kaldi's within rounding."""
    case, objective, supervision, output = chain_case(folder)
    check_result(objective.compute(supervision, output.astype(dtype)), case, folder)
    probs = read_vector(folder / "initial_probs.vec")
    np.testing.assert_allclose(objective.graph.initial_probs, probs, atol=1e-7)


def test_end_to_end_objective() -> None:
    """With loops in FSTs, all figures are Kaldi's within rounding."""
    folder = CHAIN_REFERENCE / "end_to_end"
    case, objective, supervision, output = chain_case(folder)

    assert supervision.fst is None
    check_result(objective.compute(supervision, output), case, folder)


# ---- digits ----


def test_examples() -> None:
    """Examples that Kaldi wrote without compression are written as the same bytes."""
    entries = list(entries_of(DIGITS / "copy.shift.ark", read_chain_example))

    assert len(entries) == 8
    assert [example_bytes(entry.value) for entry in entries] == [each.data for each in entries]


OPTIONS = {"leaky_hmm_coefficient": 0.1, "l2_regularize": 0.00005, "xent_regularize": 0.1}
"""The options of all of Kaldi's command lines."""


def test_evaluation_of_unconstrained_examples() -> None:
    """The objective of examples without times is Kaldi's, to all printed digits."""
    folder = CHAIN_REFERENCE / "unconstrained"
    nnet = read_nnet(DIGITS / "train.m0.9.raw")
    training = ChainTraining(nnet, DIGITS / "den.fst", ChainOptions(**OPTIONS))
    log = (folder / "digits.prob.log").read_text()

    examples = minibatches(read_chain_examples(folder / "digits.cegs.ark"), 16)
    sums = compute_chain_prob(nnet, training, examples)

    printed = dict(re.findall(r"log-probability for '(\S+)' is (\S+)", log))
    assert {key: f"{each.per_frame:.6g}" for key, each in sums.items()} == printed
    assert sums["output"].weight == 148


RELUS = ("tdnn1.relu", "tdnnf2.relu", "prefinal-xent.relu", "prefinal-chain.relu")
"""The components that draw, in Kaldi's order."""
SOFTMAX = "output-xent.log-softmax"
DRAWN_BEFORE = 1390
"""Random numbers that Kaldi draws before its first minibatch, most of them for compiling."""
DRAWS = 17
"""Random numbers that Kaldi draws for each minibatch."""


class KaldiDraws:
    """Kaldi's random decisions in these runs, minibatch by minibatch.

    Kaldi draws from the C library, seeded with --srand. In the forward pass of a minibatch it draws
    one number for each ReLU (whether to store statistics), and then two for the objective. In the
    backward pass it draws two numbers for each ReLU, from the last to the first: whether to repair,
    and whether to store statistics of derivatives. After the last ReLU it draws one for the
    softmax. Then it draws one when it applies l2, and one for the orthonormal constraint.
    """

    def __init__(self) -> None:
        random = CRandom(1)
        self.numbers = [random.rand() for _ in range(DRAWN_BEFORE + 7 * DRAWS)][DRAWN_BEFORE:]

    def is_constrained(self, minibatch: int) -> bool:
        """Whether Kaldi applied the constraint after a minibatch."""
        return self.numbers[DRAWS * minibatch + DRAWS - 1] % 4 == 0

    def chances(self, name: str) -> Iterator[float]:
        """0 or 1 for each decision of a ReLU or the softmax: 0 where Kaldi's answer was yes.

        In the first minibatch Kaldi stores all statistics, and the trainer does not ask.
        """
        for minibatch in range(7):
            numbers = self.numbers[DRAWS * minibatch : DRAWS * (minibatch + 1)]
            forward = dict(zip(RELUS, numbers, strict=False))
            last, softmax, others = numbers[6:8], numbers[8], numbers[9:15]
            pairs = [last, others[:2], others[2:4], others[4:]]
            backward = dict(zip(reversed(RELUS), pairs, strict=True))
            if name == SOFTMAX:
                if minibatch:
                    yield 0.0 if softmax % 4 else 1.0
                continue
            repair, keep = backward[name]
            if minibatch:
                yield 0.0 if forward[name] % 2 else 1.0
            yield 0.0 if (repair + 1.0) / (2.0**31 + 1.0) <= 0.5 else 1.0
            if minibatch:
                yield 0.0 if keep % 4 else 1.0


class KaldiTrainer(Trainer):
    """A trainer that makes Kaldi's random decisions."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.kaldi = KaldiDraws()
        for name in (*RELUS, SOFTMAX):
            number = self.nnet.component_names.index(name)
            self._device_nnet.kernel(number).store.draw = self.kaldi.chances(name).__next__

    def is_constrained(self, component: int, minibatch: int) -> bool:
        """Whether Kaldi applied the constraint after this minibatch."""
        return self.kaldi.is_constrained(minibatch)


def test_constraints_fit_the_logs() -> None:
    """The constraint is drawn at the end only, where Kaldi's logs warn of it."""
    draws = KaldiDraws()

    assert [draws.is_constrained(minibatch) for minibatch in range(7)] == [False] * 6 + [True]


MOMENTUM = {"m0.9": 0.9, "m0.0": 0.0, "m0.0.again": 0.0}
"""Kaldi's runs; the last repeats the one before it with another build of Kaldi."""


@functools.cache
def train(momentum: float) -> tuple[Trainer, list[dict[str, Objective]]]:
    """A trainer after Kaldi's seven minibatches, and the objectives of each."""
    nnet = read_nnet(DIGITS / "initial.raw")
    options = ChainOptions(apply_deriv_weights=momentum > 0.0, **OPTIONS)
    training = ChainTraining(nnet, DIGITS / "den.fst", options)
    trainer = KaldiTrainer(
        nnet,
        TrainerOptions(learning_rate=0.002, momentum=momentum, max_param_change=2.0),
        objective=training,
    )
    examples = minibatches(read_chain_examples(DIGITS / "cegs.ark"), 32)
    return trainer, [trainer.train_minibatch(each) for each in itertools.islice(examples, 7)]


def printed(run: str, output: str) -> list[float]:
    """The objectives of the first six minibatches in Kaldi's log."""
    log = (DIGITS / f"train.{run}.log").read_text()
    pattern = rf"for '{output}' for minibatches \d-\d is (\S+)"
    return [float(number) for number in re.findall(pattern, log)]


@pytest.mark.parametrize("output", ["output", "output-xent"])
@pytest.mark.parametrize(
    ("run", "tolerance"), [("m0.9", 2e-5), ("m0.0", 5e-4), ("m0.0.again", 5e-4)]
)
def test_objectives_in_training(run: str, tolerance: float, output: str) -> None:
    """The objectives per frame are Kaldi's.

    Without momentum, steps are ten times as large, and their rounding errors add up: two builds of
    Kaldi differ by 3.9e-4, too. Our difference from the second of them was 2e-6.
    """
    _, objectives = train(MOMENTUM[run])

    found = [each[output].total / each[output].weight for each in objectives[:6]]
    np.testing.assert_allclose(found, printed(run, output), atol=tolerance)
    assert [each[output].weight for each in objectives] == [320.0] * 7


@pytest.mark.parametrize("run", ["m0.9", "m0.0", "m0.0.again"])
def test_statistics_in_training(run: str) -> None:
    """Statistics are stored and ReLUs repaired in the same minibatches as in Kaldi's runs."""
    trained, kaldi = train(MOMENTUM[run])[0].nnet, read_nnet(DIGITS / f"train.{run}.raw")
    for name in (*RELUS, SOFTMAX):
        number = kaldi.component_names.index(name)
        found, wanted = trained.components[number], kaldi.components[number]
        assert found.count == wanted.count
        assert found.oderiv_count == wanted.oderiv_count
        assert found.num_dims_processed == wanted.num_dims_processed


def test_l2_in_training() -> None:
    """The l2 term of the output is logged beside the objective, as Kaldi prints it."""
    trainer, _ = train(0.9)
    log = (DIGITS / "train.m0.9.log").read_text()
    found = re.search(r"Overall average objective function for 'output' is (\S+) \+ (\S+) =", log)
    total = trainer.objectives["output"]

    assert total.per_frame == pytest.approx(float(found[1]), abs=2e-5)
    assert total.auxiliary / total.weight == pytest.approx(float(found[2]), rel=1e-3)


def parameters(name: str) -> np.ndarray:
    """The parameters of a network of the digits system."""
    return vectorize(read_nnet(DIGITS / f"{name}.raw"))


@pytest.mark.parametrize("runs", [["m0.9"], ["m0.0", "m0.0.again"]], ids=["m0.9", "m0.0"])
def test_parameters(runs: list[str]) -> None:
    """Parameters end within 1e-2 of Kaldi's, and their change close to Kaldi's.

    Without momentum, two builds of Kaldi end 1.7e-2 of the change apart, because rounding decides
    the sign of an activation that is nearly zero. Our least difference was 6e-5 (with momentum
    1.3e-3, where two activations have another sign).
    """
    before, found = parameters("initial"), vectorize(train(MOMENTUM[runs[0]])[0].nnet)
    distances = []
    for run in runs:
        wanted = parameters(f"train.{run}")
        distance = np.linalg.norm(found - wanted)
        assert distance < 1e-2 * np.linalg.norm(wanted)
        distances.append(distance / np.linalg.norm(wanted - before))
    assert max(distances) < 2.5e-2
    assert min(distances) < 5e-3


TRAINED = 224
"""Numbers of the examples, of 252, in Kaldi's seven minibatches."""


def test_held_out_objective(tmp_path: Path) -> None:
    """After an epoch of the recipe, held-out examples score better than in Kaldi's runs."""
    examples = list(read_chain_examples(DIGITS / "cegs.ark"))
    known, held_out = examples[:TRAINED], examples[TRAINED:]
    nnet, chain = read_nnet(DIGITS / "initial.raw"), ChainOptions(**OPTIONS)
    training = ChainTraining(nnet, DIGITS / "den.fst", chain)
    options = RecipeOptions(
        num_epochs=1,
        initial_learning_rate=0.002,
        final_learning_rate=0.0002,
        minibatch_size="32",
        frame_subsampling_factor=3,
        chain=chain,
    )

    run = train_recipe(tmp_path / "run", nnet, known, options, den_fst=DIGITS / "den.fst")

    def objective(path: Path) -> float:
        return compute_chain_prob(read_nnet(path), training, held_out)["output"].per_frame

    kaldi = [objective(DIGITS / f"train.m{momentum}.raw") for momentum in (0.0, 0.9)]
    assert objective(run.folder / "final.raw") > max(kaldi)
