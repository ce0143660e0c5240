"""Schedules, checkpoints, and users' actions between minibatches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from example_cases import noise
from nnet3_descriptors import vectorize
from nnet3_runtime_cuda.cuda import Platform
from nnet3_training import (
    Callback,
    Checkpoints,
    DropoutFunction,
    DropoutSchedule,
    LearningRateSchedule,
    Objective,
    Trainer,
    TrainerOptions,
    TrainingExample,
)
from small_networks import network, stacked

NETWORK = network(
    stacked(
        3,
        "a Affine input-dim=3 output-dim=4",
        "lstm1.dropout Dropout dim=4 dropout-proportion=0.3",
        "relu1.dropout GeneralDropout dim=4 dropout-proportion=0.3",
        "b Affine input-dim=4 output-dim=2",
        objective="quadratic",
    )
)
"""Two components with dropout between affine maps."""


def minibatch(number: int = 0) -> TrainingExample:
    """Frames of noise."""
    return noise(number, 10, (3, 2))


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("0,0@0.20,0.5@0.5,0", {0.0: 0.0, 0.1: 0.0, 0.2: 0.0, 0.35: 0.25, 0.5: 0.5, 0.75: 0.25}),
        ("0.0,0.3,0.0", {0.0: 0.0, 0.25: 0.15, 0.5: 0.3, 1.0: 0.0}),
        ("0.1,0.5", {0.0: 0.1, 0.5: 0.3, 1.0: 0.5}),
        ("0,0.5@0.25,0.0,0.6@0.75,0", {0.1: 0.2, 0.25: 0.5, 0.5: 0.0, 0.75: 0.6}),
        ("0,0@0.5,0.4@0.5,0.4", {0.49: 0.0, 0.5: 0.4, 1.0: 0.4}),
    ],
)
def test_functions(text: str, points: Mapping[float, float]) -> None:
    """A schedule is a piecewise linear function, as in Kaldi's --trainer.dropout-schedule."""
    function = DropoutFunction.parse(text)

    assert function.pattern == "*"
    assert {at: function(at) for at in points} == pytest.approx(dict(points))


class Proportions(Callback):
    """Remembers the proportions of each minibatch."""

    def __init__(self) -> None:
        self.found: list[tuple[float, float]] = []

    def after_minibatch(self, trainer: Trainer, objectives: Mapping[str, Objective]) -> None:
        """Reads the proportions from the network."""
        names = "lstm1.dropout", "relu1.dropout"
        one, other = (trainer.nnet.component(name).dropout_proportion for name in names)
        self.found.append((round(float(one), 4), round(float(other), 4)))


def test_dropout_schedule(tmp_path: Path) -> None:
    """Proportions follow the schedule, by pattern and minibatch, also after a checkpoint."""
    path, seen = tmp_path / "checkpoint", Proportions()

    def callbacks() -> list[Callback]:
        return [
            DropoutSchedule("*=0,0.4,0 lstm*=0,0@0.5,0.8", 8),
            Checkpoints(path, period=3),
            seen,
        ]

    trainer = Trainer(NETWORK, TrainerOptions(), callbacks=callbacks())
    for number in range(4):
        trainer.train_minibatch(minibatch(number))
    resumed = Trainer.load(path, callbacks=callbacks())
    assert resumed.num_minibatches == 3
    for number in range(3, 9):
        resumed.train_minibatch(minibatch(number))

    lstm = [0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 0.4, 0.6, 0.8]
    rest = [0.0, 0.1, 0.2, 0.3, 0.4, 0.3, 0.2, 0.1, 0.0]
    wanted = [*zip(lstm, rest, strict=True)]
    assert seen.found == [*wanted[:4], *wanted[3:]]


def test_few_changes() -> None:
    """Proportions change the given number of times."""
    seen = Proportions()
    schedule = DropoutSchedule("0,1", 8, num_changes=2)
    trainer = Trainer(NETWORK, TrainerOptions(), callbacks=[schedule, seen])
    for number in range(8):
        trainer.train_minibatch(minibatch(number))

    assert [one for one, _ in seen.found] == [0.0] * 4 + [0.5] * 4


def test_change_that_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the proportions that was interrupted is made before the next minibatch."""
    seen = Proportions()
    trainer = Trainer(NETWORK, callbacks=[DropoutSchedule("0.7,0", 100, num_changes=10), seen])
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "set_dropout", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            trainer.train_minibatch(minibatch())
    trainer.train_minibatch(minibatch())

    assert seen.found == [(0.7, 0.7)]


def test_schedule_of_another_trainer() -> None:
    """A schedule that one trainer has used begins anew with another one."""
    seen, schedule = Proportions(), DropoutSchedule("0.1,1", 8)
    for _ in range(2):
        trainer = Trainer(NETWORK, TrainerOptions(), callbacks=[schedule, seen])
        trainer.train_minibatch(minibatch())

    assert seen.found == [(0.1, 0.1), (0.1, 0.1)]


def test_learning_rate_schedule() -> None:
    """Rates fall by equal factors from the initial to the final rate, and then stay."""
    schedule = LearningRateSchedule(initial=0.1, final=0.001, num_minibatches=4)

    assert [schedule.rate(number) for number in (0, 2, 4, 9)] == pytest.approx(
        [0.1, 0.01, 0.001, 0.001]
    )
    trainer = Trainer(NETWORK, TrainerOptions(), callbacks=[schedule])
    for number in range(3):
        trainer.train_minibatch(minibatch(number))
    assert trainer.nnet.component("a").learning_rate == pytest.approx(0.01)


def test_momentum_under_another_rate() -> None:
    """Momentum stores changes of parameters, which a new rate does not scale."""
    check_momentum_under_another_rate("cpu")


def check_momentum_under_another_rate(device: str | Platform) -> None:
    """With a rate of almost 0, the parameters change only by the stored momentum."""
    momentum, rate = 0.5, 0.01
    options = TrainerOptions(
        learning_rate=rate, momentum=momentum, max_param_change=0.0, natural_gradient=False
    )
    trainer = Trainer(NETWORK, options, device)
    trainer.set_dropout(0.0)
    trainer.train_minibatch(minibatch())
    first = vectorize(trainer.nnet) - vectorize(NETWORK)
    assert np.abs(first).max() > 1e-3

    trainer.set_learning_rate(1e-12)
    for power in (1, 2):
        before = vectorize(trainer.nnet)
        trainer.train_minibatch(minibatch())
        change = vectorize(trainer.nnet) - before
        np.testing.assert_allclose(change, first * momentum**power, rtol=1e-3, atol=1e-6)

    trainer.set_learning_rate(0.0)
    before = vectorize(trainer.nnet)
    trainer.train_minibatch(minibatch())
    np.testing.assert_array_equal(vectorize(trainer.nnet), before)
