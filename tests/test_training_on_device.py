"""Training on a device, whose kernels the processor runs, gives what it gives on the processor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from emulated_device import HostPlatform, compiler
from nnet3_descriptors import parse_config, vectorize
from nnet3_training import Objective, Trainer, TrainerOptions, TrainingExample
from test_callbacks import check_momentum_under_another_rate
from test_checkpoints import OPTIONS, go_on, network_of, saved
from test_training import (
    NETWORK_WITH_ALL,
    check_that_natural_gradient_goes_on,
    example,
    network,
    plain,
)

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


def test_momentum_under_another_rate() -> None:
    """Momentum stores changes of parameters, which a new rate does not scale."""
    check_momentum_under_another_rate(HostPlatform())


@pytest.mark.parametrize("spoilt", [0, 2, 12])
def test_natural_gradient_goes_on_after_a_step_that_is_not_finite(spoilt: int) -> None:
    """Derivatives whose squares overflow are not an error, and later steps reach the solution."""
    check_that_natural_gradient_goes_on(spoilt, HostPlatform())


MANY = {"learning_rate": 0.05, "momentum": 0.5, "max_param_change": 0.4, "orthonormal_period": 2,
        "batchnorm_stats_scale": 0.9, "l2_regularize_factor": 0.3}  # fmt: skip
TRAINED = {
    "natural gradient": MANY,
    "plain gradient": MANY | {"natural_gradient": False},
    "backstitch": {
        "learning_rate": 0.01,
        "backstitch_training_scale": 0.5,
        "backstitch_training_interval": 2,
    },
}


@pytest.mark.parametrize("options", TRAINED.values(), ids=TRAINED)
def test_device_trains_as_the_processor(options: dict[str, float]) -> None:
    """With any options, steps on a device are those on the processor.

    The natural gradient is not updated in a step back there, either.
    """
    nnet = parse_config(NETWORK_WITH_ALL, rng=np.random.default_rng(1))
    here, there = (
        Trainer(nnet, TrainerOptions(**options), each) for each in ("cpu", HostPlatform())
    )
    for seed in range(6):
        expected, found = (each.train_minibatch(example(seed=seed)) for each in (here, there))
        assert {name: each.total for name, each in found.items()} == pytest.approx(
            {name: each.total for name, each in expected.items()}, rel=1e-3
        )
    assert here.num_globally_limited > 0
    assert there.summary().split(":")[0] == here.summary().split(":")[0]
    np.testing.assert_allclose(vectorize(there.nnet), vectorize(here.nnet), rtol=1e-3, atol=1e-4)


def test_device_forgets_changes_that_are_not_finite() -> None:
    """A step that is not finite is left out on a device, too, and does not come back."""

    def vast(outputs: Mapping[str, np.ndarray], _: TrainingExample) -> dict[str, Objective]:
        derivative = np.full_like(outputs["output"], 3e38 if trainer.num_minibatches == 0 else 1.0)
        return {"output": Objective(total=0.0, weight=1.0, derivative=derivative)}

    trainer = Trainer(network(), plain(momentum=0.9), HostPlatform(), objective=vast)
    before = vectorize(trainer.nnet)
    with np.errstate(all="ignore"):
        trainer.train_minibatch(example())
    np.testing.assert_array_equal(vectorize(trainer.nnet), before)
    assert trainer.num_skipped == 1
    trainer.train_minibatch(example())
    assert np.isfinite(vectorize(trainer.nnet)).all()


@pytest.mark.parametrize(
    "component", ["BatchNormComponent dim=6", "RectifiedLinearComponent dim=6"]
)
def test_resumed_run_on_a_device(component: str, tmp_path: Path) -> None:
    """A resumed run ends as a whole one does; a run can continue on the processor."""
    nnet, path = network_of(component), tmp_path / "checkpoint"
    trainer = go_on(Trainer(nnet, OPTIONS, HostPlatform()), 5)
    saved(trainer, path)

    resumed = go_on(Trainer.load(path, HostPlatform()), 15)
    elsewhere = go_on(Trainer.load(path), 15)

    assert saved(resumed, tmp_path / "a") == saved(go_on(trainer, 15), tmp_path / "b")
    np.testing.assert_allclose(
        vectorize(elsewhere.nnet), vectorize(trainer.nnet), rtol=1e-3, atol=1e-4
    )
