"""A trainer whose methods are called in any order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from example_cases import noise
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from nnet3_descriptors import Nnet3Error
from nnet3_runtime_cuda import TrainingError
from nnet3_training import Objective, OutputObjectives, Trainer, TrainerOptions, TrainingExample
from small_networks import network, stacked

NETWORK = network(
    stacked(
        4,
        "a NaturalGradientAffine input-dim=8 output-dim=6 l2-regularize=0.01 max-change=0.2 "
        "bias-stddev=0",
        "relu RectifiedLinear dim=6 self-repair-scale=0.1",
        "norm BatchNorm dim=6",
        "dropout GeneralDropout dim=6 dropout-proportion=0.2",
        "l Tdnn input-dim=6 output-dim=6 time-offsets=-1,0 use-bias=true",
        "rms Normalize dim=6",
        "b Linear input-dim=6 output-dim=3 orthonormal-constraint=1.0",
        splice="Append(Offset(input, -1), input)",
        objective="quadratic",
    ),
    seed=3,
)
"""A network whose components keep statistics, draw masks, and are constrained."""


def minibatch(number: int, dim: int = 4) -> TrainingExample:
    """Frames of noise: one sequence or two, of two lengths."""
    return noise(number, 8 + number % 2, (dim, 3), sequences=1 + number // 2 % 2, context=2)


class TrainerCalls(RuleBasedStateMachine):
    """What only looks at a trainer, or stores it, or is refused, changes no byte of what follows.

    A second trainer gets only the calls that change something.
    """

    @initialize(
        momentum=st.sampled_from([0.0, 0.5]),
        backstitch=st.booleans(),
        max_computations=st.sampled_from([1, 10]),
    )
    def begin(self, momentum: float, backstitch: bool, max_computations: int) -> None:
        """Begins two trainers of the same network."""
        options = TrainerOptions(
            learning_rate=0.02,
            momentum=momentum,
            seed=11,
            print_interval=3,
            backstitch_training_scale=0.3 if backstitch and not momentum else 0.0,
            backstitch_training_interval=2,
            max_computations=max_computations,
        )
        self.trainer, self.other = (Trainer(NETWORK, options) for _ in range(2))

    @rule(numbers=st.lists(st.integers(0, 7), min_size=1, max_size=3))
    def train(self, numbers: list[int]) -> None:
        """Makes steps; parameters and statistics are the same bytes."""
        for number in numbers:
            for each in (self.trainer, self.other):
                each.train_minibatch(minibatch(number))
        assert self.trainer.nnet.to_bytes() == self.other.nnet.to_bytes()
        assert self.trainer.summary() == self.other.summary()

    @rule(rate=st.sampled_from([0.0, 0.01, 0.05]))
    def set_learning_rate(self, rate: float) -> None:
        """Sets the learning rate, twice in one of the two."""
        for each in (self.trainer, self.trainer, self.other):
            each.set_learning_rate(rate)

    @rule(proportion=st.sampled_from([0.0, 0.1, 0.5]))
    def set_dropout(self, proportion: float) -> None:
        """Sets the proportion of dropout, twice in one of the two."""
        for each in (self.trainer, self.trainer, self.other):
            each.set_dropout(proportion)

    @rule()
    def store(self) -> None:
        """Goes on from a checkpoint."""
        with tempfile.TemporaryDirectory() as folder:
            self.trainer.save(Path(folder, "checkpoint"))
            self.trainer = Trainer.load(Path(folder, "checkpoint"))

    @rule(number=st.integers(0, 7), test_mode=st.booleans())
    def evaluate(self, number: int, test_mode: bool) -> None:
        """Evaluates a minibatch."""
        self.trainer.evaluate(minibatch(number), test_mode=test_mode)

    @rule()
    def look(self) -> None:
        """Reads what a trainer shows."""
        assert repr(self.trainer)
        assert self.trainer.nnet.num_parameters

    @rule(number=st.integers(0, 7))
    def refuse(self, number: int) -> None:
        """Offers an example that does not fit, and options that are out of range."""
        with pytest.raises(Nnet3Error):
            self.trainer.train_minibatch(minibatch(number, dim=5))
        with pytest.raises(Nnet3Error):
            self.trainer.set_learning_rate(-1.0)
        with pytest.raises(Nnet3Error):
            self.trainer.set_dropout(2.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda trainer: trainer.save("no folder/checkpoint"),
        lambda trainer: trainer.train_minibatch(minibatch(2)),
        lambda trainer: trainer.set_learning_rate(0.5),
        lambda trainer: trainer.set_dropout(0.0),
    ],
)
def test_calls_within_a_step(call: Callable[[Trainer], object]) -> None:
    """What would find or leave a half-made step, as a handler of a signal may, is refused."""
    own, calls = OutputObjectives({"*": "linear"}), [call]

    def objective(outputs: Any, example: TrainingExample) -> dict[str, Objective]:
        assert trainer.nnet.num_parameters
        while calls:
            calls.pop()(trainer)
        return own(outputs, example)

    trainer, other = (Trainer(NETWORK, objective=each) for each in (objective, own))
    with pytest.raises(TrainingError, match="while it makes a step: do it between minibatches"):
        trainer.train_minibatch(minibatch(1))
    for each in (trainer, other):
        each.train_minibatch(minibatch(1))
    assert trainer.nnet.to_bytes() == other.nnet.to_bytes()


TrainerCalls.TestCase.settings = settings(stateful_step_count=15)
TestTrainer = TrainerCalls.TestCase
