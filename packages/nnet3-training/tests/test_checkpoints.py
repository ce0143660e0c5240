"""Training from a checkpoint, or in several runs, compared with one without interruption."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
import pytest
from example_cases import example_of, noise
from killed_training import train, train_with_kills
from nnet3_descriptors import Component, Nnet, SerializationError, parse_config, vectorize
from nnet3_training import Objective, Trainer, TrainerOptions, TrainingExample
from small_networks import network, stacked

COMPONENTS = {
    "NoOpComponent dim=6": (6, 6),
    "TanhComponent dim=6 self-repair-scale=0.1 self-repair-lower-threshold=0.9": (6, 6),
    "RectifiedLinearComponent dim=6 self-repair-scale=0.1 self-repair-lower-threshold=0.4": (6, 6),
    "LogSoftmaxComponent dim=6": (6, 6),
    "BatchNormComponent dim=6": (6, 6),
    "DropoutComponent dim=6 dropout-proportion=0.3": (6, 6),
    # One number for each frame; the number of frames up to the checkpoint is odd.
    "DropoutComponent dim=6 dropout-proportion=0.3 dropout-per-frame=true": (6, 6),
    "GeneralDropoutComponent dim=6 dropout-proportion=0.3": (6, 6),
    "SpecAugmentTimeMaskComponent dim=6 zeroed-proportion=0.3": (6, 6),
    "LinearComponent input-dim=6 output-dim=6 orthonormal-constraint=1.0": (6, 6),
    "NaturalGradientPerElementScaleComponent dim=6": (6, 6),
    "NaturalGradientRepeatedAffineComponent input-dim=6 output-dim=6 num-repeats=2": (6, 6),
    "ScaleAndOffsetComponent dim=6": (6, 6),
    "BackpropTruncationComponent dim=6 clipping-threshold=0.1": (6, 6),
    "ClipGradientComponent dim=6 clipping-threshold=0.1 norm-based-clipping=true "
    "self-repair-scale=0.1 self-repair-clipped-proportion-threshold=0.1": (6, 6),
    "LstmNonlinearityComponent cell-dim=3": (15, 6),
    "GruNonlinearityComponent cell-dim=3 recurrent-dim=2 self-repair-threshold=0.9": (13, 6),
    "OutputGruNonlinearityComponent cell-dim=3 self-repair-threshold=0.9": (9, 6),
    "RestrictedAttentionComponent num-heads=1 key-dim=2 value-dim=2 num-left-inputs=1 "
    "num-right-inputs=0 time-stride=1 num-left-inputs-required=0": (8, 4),
    "CompositeComponent num-components=3 component1='type=TanhComponent dim=6' "
    "component2='type=NaturalGradientPerElementScaleComponent dim=6' "
    "component3='type=RectifiedLinearComponent dim=6 self-repair-scale=0.1'": (6, 6),
}
"""Components with statistics or random draws, with their dimensions."""


def network_of(component: str = "NoOpComponent dim=6", dims: tuple[int, int] = (6, 6)) -> Nnet:
    """A network with a component between two affine ones."""
    config = stacked(
        4,
        f"a NaturalGradientAffine input-dim=8 output-dim={dims[0]} l2-regularize=0.01 "
        "max-change=0.2",
        f"m {component.replace('Component ', ' ', 1)}",
        f"b NaturalGradientAffine input-dim={dims[1]} output-dim=3",
        splice="Append(Offset(input, -1), input)",
        objective="quadratic",
    )
    return network(config, seed=3)


def minibatch(number: int) -> TrainingExample:
    """Frames of noise: by turns two sequences or one, of two lengths."""
    return noise(number, 8 + number % 2, (4, 3), sequences=2 - number % 2, context=1)


def go_on(trainer: Trainer, count: int) -> Trainer:
    """Trains up to minibatch number `count`."""
    while trainer.num_minibatches < count:
        trainer.train_minibatch(minibatch(trainer.num_minibatches))
    return trainer


def saved(trainer: Trainer, path: Path) -> bytes:
    """The bytes of a checkpoint."""
    trainer.save(path)
    return path.read_bytes()


def resumed(trainer: Trainer, folder: Path, count: int, **again: object) -> Trainer:
    """A run that goes on from a checkpoint, with the bytes of the run that goes on without."""
    saved(trainer, folder / "checkpoint")
    other = go_on(Trainer.load(folder / "checkpoint", **again), count)
    assert saved(other, folder / "a") == saved(go_on(trainer, count), folder / "b")
    return other


OPTIONS = TrainerOptions(learning_rate=0.02, momentum=0.5, seed=11, print_interval=3)


@pytest.mark.parametrize("component", COMPONENTS)
def test_resumed_run(component: str, tmp_path: Path) -> None:
    """A run from a checkpoint ends with the bytes of an uninterrupted run."""
    trainer = go_on(Trainer(network_of(component, COMPONENTS[component]), OPTIONS), 15)

    other = resumed(trainer, tmp_path, 40)

    assert other.nnet.to_bytes() == trainer.nnet.to_bytes()
    assert other.summary() == trainer.summary()


ZERO_BIAS = stacked(
    64,
    "a NaturalGradientAffine input-dim=64 output-dim=64",
    "b NaturalGradientAffine input-dim=128 output-dim=64 bias-stddev=0 "
    "input=Append(Offset(a, -1), Offset(a, 1))",
    "n Normalize dim=64",
    objective="quadratic",
)
"""A layer that is large enough for minimal filtering, unless its outputs need exact zeros."""


def test_resumed_run_of_a_bias_that_was_zero(tmp_path: Path) -> None:
    """A run goes on computing a layer in the way that its bias decided at the start."""
    rng, path = np.random.default_rng(5), tmp_path / "checkpoint"
    inputs = rng.standard_normal((3, 120, 64))
    example = example_of(inputs, rng.standard_normal((3, 118, 64)), context=1)
    trainer = Trainer(parse_config(ZERO_BIAS, rng=rng), OPTIONS)
    trainer.train_minibatch(example)
    saved(trainer, path)

    other = Trainer.load(path)

    for each in (trainer, other):
        each.train_minibatch(example)
    assert saved(other, tmp_path / "a") == saved(trainer, tmp_path / "b")


def numbers(component: Component) -> Iterator[tuple[str, float]]:
    """The fields of a component that are numbers, and the sums of those that are arrays."""
    for part in getattr(component, "components", ()):
        yield from numbers(part)
    parameters = component.parameter_arrays()
    for field in component.FIELDS:
        value = getattr(component, field.name)
        if field.name not in parameters and isinstance(value, int | float | np.ndarray):
            yield field.name, float(np.abs(value).sum())


@pytest.mark.parametrize("component", COMPONENTS)
def test_statistics_begin_at_zero(component: str) -> None:
    """Without `zero_component_stats=False`, a new run resets all statistics of its network."""
    trainer = Trainer(network_of(component, COMPONENTS[component]), OPTIONS)
    new = [*numbers(trainer.nnet.component("m"))]

    fresh = Trainer(go_on(trainer, 3).nnet, OPTIONS).nnet

    assert [*numbers(fresh.component("m"))] == new


@pytest.mark.parametrize(
    "changes",
    [
        {"momentum": 0.0},
        {"momentum": 0.0, "backstitch_training_scale": 0.3, "backstitch_training_interval": 2},
        {"natural_gradient": False},
        {"store_component_stats": False},
        {"batchnorm_stats_scale": 0.0, "zero_component_stats": False},
    ],
)
def test_options(changes: dict[str, float], tmp_path: Path) -> None:
    """The same holds with other options, and for a network that was trained before."""
    nnet = go_on(Trainer(network_of("BatchNormComponent dim=6"), OPTIONS), 2).nnet
    trainer = go_on(Trainer(nnet, attrs.evolve(OPTIONS, **changes)), 5)

    assert resumed(trainer, tmp_path, 20).options == trainer.options


@pytest.mark.any_versions
def test_killed_process(tmp_path: Path) -> None:
    """A process that is killed during training or a write loses at most its last minibatch."""
    whole, interrupted = tmp_path / "whole", tmp_path / "interrupted"
    train(whole, 150)

    killed, _ = train_with_kills(interrupted, 150, kills=3, seed=1)

    assert killed >= 1
    assert interrupted.read_bytes() == whole.read_bytes()


def test_damage_anywhere(tmp_path: Path) -> None:
    """A checkpoint with a changed byte, or that was cut off, is refused with one clear error."""
    path = tmp_path / "checkpoint"
    data = saved(go_on(Trainer(network_of(), OPTIONS), 2), path)
    rng = np.random.default_rng(0)
    places = rng.choice(len(data), 300, replace=False)

    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        with pytest.raises(SerializationError, match=f"'{path}' is no checkpoint: "):
            Trainer.load(path)
        path.write_bytes(data[:place])
        with pytest.raises(SerializationError, match=f"'{path}' is no checkpoint: "):
            Trainer.load(path)


def test_objective_of_the_user(tmp_path: Path) -> None:
    """A run with a user's objective function goes on with it."""

    def objective(outputs: object, example: TrainingExample) -> dict[str, Objective]:
        difference = example.outputs[0].supervision.values - outputs["output"]
        return {"output": Objective(total=0.0, weight=1.0, derivative=difference)}

    trainer = go_on(Trainer(network_of(), OPTIONS, objective=objective), 3)
    resumed(trainer, tmp_path, 9, objective=objective)


def test_objective_by_name(tmp_path: Path) -> None:
    """The name of an objective is in the checkpoint."""
    resumed(go_on(Trainer(network_of(), OPTIONS, objective="cross-entropy"), 3), tmp_path, 9)


# ---- several runs compared with one ----


def trained_in_runs(nnet: Nnet, *lengths: int) -> np.ndarray:
    """The parameters after runs of these numbers of minibatches; each writes the network."""
    options = TrainerOptions(learning_rate=0.05, momentum=0.0, natural_gradient=False)
    minibatches = (noise(seed, 8, (4, 3), context=1) for seed in range(sum(lengths)))
    for length in lengths:
        trainer = Trainer(nnet, options)
        for _ in range(length):
            trainer.train_minibatch(next(minibatches))
        nnet = Nnet.from_bytes(trainer.nnet.to_bytes())
    return vectorize(nnet)


@pytest.mark.parametrize(
    ("component", "first"),
    [
        ("NoOpComponent dim=6", 5),
        ("TanhComponent dim=6 self-repair-scale=0", 5),
        ("BatchNormComponent dim=6", 5),
        ("LinearComponent input-dim=6 output-dim=6 orthonormal-constraint=1.0", 8),
    ],
)
def test_two_runs_equal_one(component: str, first: int) -> None:
    """Results agree after whole periods, without momentum, natural gradient, masks and repair."""
    nnet = network_of(component)

    np.testing.assert_allclose(
        trained_in_runs(nnet, first, 12 - first), trained_in_runs(nnet, 12), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    "component",
    [
        "DropoutComponent dim=6 dropout-proportion=0.3",
        "GeneralDropoutComponent dim=6 dropout-proportion=0.3",
        "RectifiedLinearComponent dim=6 self-repair-scale=0.1 self-repair-lower-threshold=0.4",
        "LinearComponent input-dim=6 output-dim=6 orthonormal-constraint=1.0",
    ],
)
def test_what_a_new_run_draws_anew(component: str) -> None:
    """Masks, self-repair and the periods of orthonormal constraints start again."""
    nnet = network_of(component)

    difference = trained_in_runs(nnet, 5, 12 - 5) - trained_in_runs(nnet, 12)

    assert np.abs(difference).max() > 1e-3
