"""Training the digits network on Kaldi's examples gives Kaldi's objectives and parameters.

Kaldi decides at random when to store statistics, to repair units and to apply the orthonormal
constraint. Its decisions in these runs were found in the sequence of the C library's `rand`: only
one place in it fits the row counts in the model and the warnings in the log.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest
from nnet3_descriptors import Component, Nnet, read_nnet, vectorize
from nnet3_runtime_cuda.kernels import Kernel
from nnet3_training import Trainer, TrainerOptions, minibatches, read_examples
from reference_cases import DIGITS_REFERENCE, assert_close

ACTIVATIONS_RECORDED = {
    "tdnn1.relu": {0},
    "tdnn2.relu": {0, 1, 4, 5},
    "tdnnf3.relu": {0, 4},
    "tdnn4.relu": {0, 2, 4},
}
DERIVATIVES_RECORDED = {
    "tdnn1.relu": {0, 1, 3, 4},
    "tdnn2.relu": {0, 1, 2, 4, 5},
    "tdnnf3.relu": {0, 1, 2, 3},
    "tdnn4.relu": {0, 1, 2, 3, 5},
    "output.log-softmax": {0, 1, 2, 3, 4},
}
REPAIRED = {
    "tdnn1.relu": {0, 1, 2, 3, 4},
    "tdnn2.relu": {0, 3, 4, 5},
    "tdnnf3.relu": {2, 3},
    "tdnn4.relu": {1, 3},
}
CONSTRAINED = {1, 3, 4}
"""Minibatches on which Kaldi did so, counted from 0."""


FORWARD = ("tdnn1.relu", "tdnn2.relu", "tdnnf3.relu", "tdnn4.relu")
PRINTED = {
    0.0: [-2.3979, -1.7894, -1.3391],
    0.9: [-2.3979, -2.32572, -2.18837, -1.98804, -1.77445],
}
"""The objectives of the first minibatches, by momentum, as the logs print them."""


class KaldiTrainer(Trainer):
    """A trainer that applies constraints when Kaldi did."""

    def is_constrained(self, component: int, minibatch: int) -> bool:
        """Whether Kaldi applied the constraint after this minibatch."""
        return minibatch in CONSTRAINED


def decisions() -> Iterator[tuple[float, bool]]:
    """Probability and outcome of each decision; the first minibatch always stores statistics."""
    for minibatch in range(6):
        if minibatch:
            yield from ((0.5, minibatch in ACTIVATIONS_RECORDED[name]) for name in FORWARD)
            yield 0.75, minibatch in DERIVATIVES_RECORDED["output.log-softmax"]
        for name in reversed(FORWARD):
            yield 0.5, minibatch in REPAIRED[name]
            if minibatch:
                yield 0.75, minibatch in DERIVATIVES_RECORDED[name]


@functools.cache
def train(momentum: float) -> tuple[Trainer, list[float]]:
    """A trainer after Kaldi's minibatches, and the objective per frame of each."""
    nnet = read_nnet(DIGITS_REFERENCE / "initial.raw")
    options = TrainerOptions(learning_rate=0.002, momentum=momentum, max_param_change=1.0)
    trainer = KaldiTrainer(nnet, options)
    script = decisions()

    def chance(_: Kernel, probability: float) -> bool:
        expected, outcome = next(script)
        assert probability == expected
        return outcome

    objectives = []
    examples = read_examples(DIGITS_REFERENCE / "egs.ark", nnet)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "chance", chance)
        for example in minibatches(examples, 64):
            objectives.append(trainer.train_minibatch(example)["output"])
    assert next(script, None) is None
    return trainer, [objective.total / objective.weight for objective in objectives]


def expected(momentum: float) -> Nnet:
    """The network that Kaldi trained."""
    return read_nnet(DIGITS_REFERENCE / f"trained.m{momentum}.raw")


@pytest.mark.parametrize("momentum", PRINTED)
def test_objectives(momentum: float) -> None:
    """The objectives per frame equal those that Kaldi prints with six digits.

    Without momentum, steps are ten times as large. From the fourth minibatch on, the run depends on
    single bits: a difference of 1e-7 in parameters at the start becomes 1e-2 at the end.
    """
    trainer, objectives = train(momentum)

    np.testing.assert_allclose(objectives[: len(PRINTED[momentum])], PRINTED[momentum], rtol=5e-6)
    assert trainer.objectives["output"].weight == pytest.approx(3032.5)
    assert trainer.objectives["output"].minibatches == 6


def test_parameters() -> None:
    """With momentum 0.9 the parameters end within 1e-3 of Kaldi's, and so does their change."""
    trainer, _ = train(0.9)
    before = vectorize(read_nnet(DIGITS_REFERENCE / "initial.raw"))
    actual, wanted = vectorize(trainer.nnet), vectorize(expected(0.9))

    assert_close({"parameters": actual}, {"parameters": wanted}, 1e-3)
    assert_close({"change": actual - before}, {"change": wanted - before}, 1e-3)


def test_limits() -> None:
    """Without momentum, max-change is enforced as often as in Kaldi, for the model and tdnn1."""
    trainer, _ = train(0.0)

    assert trainer.num_globally_limited == 5
    assert trainer.num_limited["tdnn1.affine"] == 4
    assert train(0.9)[0].num_globally_limited == 0


@pytest.mark.parametrize("momentum", PRINTED)
def test_counts_in_statistics(momentum: float) -> None:
    """The counts of rows and of repaired units are Kaldi's."""
    trainer, _ = train(momentum)

    names = ("count", "oderiv_count", "num_dims_self_repaired", "num_dims_processed")
    for name, wanted in components(expected(momentum)):
        for field in names:
            if hasattr(wanted, field):
                value = getattr(trainer.nnet.component(name), field)
                assert value == pytest.approx(getattr(wanted, field), rel=1e-6), (name, field)


def test_averages_in_statistics() -> None:
    """The averages of nonlinearities and batch-norm are Kaldi's, within 1e-4.

    The derivative of a rectifier counts frames; rounding can turn a unit on or off in one frame. In
    tdnn2, where that happens, averages of output derivatives agree within 1e-3.
    """
    trainer, _ = train(0.9)

    for name, wanted in components(expected(0.9)):
        got = trainer.nnet.component(name)
        for field in ("value_avg", "stats_mean", "stats_var", "oderiv_rms"):
            array = getattr(wanted, field, None)
            if array is not None and array.size:
                tolerance = 1e-3 if (name, field) == ("tdnn2.relu", "oderiv_rms") else 1e-4
                assert_close({name: getattr(got, field)}, {name: array}, tolerance)
        if hasattr(wanted, "deriv_avg") and wanted.deriv_avg.size:
            frames = (got.deriv_avg - wanted.deriv_avg) * wanted.count
            assert np.abs(frames).max() < 1.01


def components(nnet: Nnet) -> list[tuple[str, Component]]:
    """Names and components."""
    return list(zip(nnet.component_names, nnet.components, strict=True))
