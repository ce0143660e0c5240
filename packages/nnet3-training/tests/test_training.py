"""Objectives, changes of parameters, and whole training steps on small networks."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs
import numpy as np
import pytest
import small_networks
from example_cases import example_of
from nnet3_descriptors import Nnet, set_test_mode, vectorize, write_nnet
from nnet3_runtime_cuda import DeviceNnet, Tracer, TrainingError
from nnet3_runtime_cuda.cpu import NumpyTape
from nnet3_runtime_cuda.cuda import Platform
from nnet3_training import (
    DenseTargets,
    ExampleError,
    ExampleInput,
    ExampleOutput,
    Objective,
    SparsePosteriors,
    Trainer,
    TrainerOptions,
    TrainingExample,
)
from nnet3_training.evaluation import MOST_COMPUTERS, Evaluator, accuracy
from nnet3_training.objectives import ObjectiveFunction, cross_entropy, linear, quadratic
from nnet3_training.parameter_update import limit_change, record_orthonormal_step
from small_networks import stacked

AFFINE = "Affine input-dim=3 output-dim=2 learning-rate=0.1"

NETWORK_WITH_ALL = stacked(
    3,
    "a NaturalGradientAffine input-dim=3 output-dim=6 l2-regularize=0.1",
    "n BatchNorm dim=6",
    "l Linear input-dim=6 output-dim=4 orthonormal-constraint=0.8",
    "b Linear input-dim=4 output-dim=2 max-change=0.02",
    objective="quadratic",
)


def network(component: str = AFFINE) -> Nnet:
    """An affine map and its output node."""
    return small_networks.network(stacked(3, f"c {component}", objective="quadratic"))


def example(*, seed: int = 0, frames: int = 20) -> TrainingExample:
    """Two sequences with targets that are a linear function of their frames."""
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal((frames, 3)) for _ in range(2)]
    targets = [x @ np.array([[1.0, 2.0], [0.0, -1.0], [0.5, 0.0]]) + [3.0, 0.0] for x in inputs]
    return example_of(inputs, targets)


def overflowing(minibatch: int) -> ObjectiveFunction:
    """The quadratic objective, whose derivatives are too large in one minibatch."""
    numbers = itertools.count()

    def objective(outputs: Mapping[str, np.ndarray], each: TrainingExample) -> dict[str, Objective]:
        difference = each.outputs[0].supervision.values - outputs["output"]
        size = 1e30 if next(numbers) == minibatch else 1.0
        return {"output": Objective(total=0.0, weight=1.0, derivative=size * difference)}

    return objective


def plain(**changes: float) -> TrainerOptions:
    """Options for steps along the plain gradient, without limits."""
    return TrainerOptions(natural_gradient=False, **({"max_param_change": 0.0} | changes))


def gradient(nnet: Nnet, example: TrainingExample) -> np.ndarray:
    """The gradient of the quadratic objective of `network`, as one vector."""
    x, y = example.inputs[0].values, example.outputs[0].supervision.values
    c = nnet.component("c")
    difference = y - x @ c.linear_params.T - c.bias_params
    return np.concatenate([(difference.T @ x).ravel(), difference.sum(axis=0)])


# ---- objectives ----


@pytest.mark.parametrize("function", [linear, quadratic, cross_entropy])
def test_derivative_of_objectives(function) -> None:
    """The derivative agrees with finite differences, for dense and sparse supervision."""
    rng = np.random.default_rng(0)
    output = rng.standard_normal((3, 4))
    sparse = SparsePosteriors(dim=4, splits=[0, 2, 2, 3], classes=[1, 3, 0], weights=[0.5, 0.5, 2])
    for supervision in (sparse, DenseTargets(values=rng.standard_normal((3, 4)))):
        derivative = function(output, supervision).derivative
        for row, column in np.ndindex(3, 4):
            step = np.zeros_like(output)
            step[row, column] = 1e-4
            up, down = (function(output + sign * step, supervision).total for sign in (1, -1))
            assert (up - down) / 2e-4 == pytest.approx(derivative[row, column], abs=1e-6)


def test_sparse_supervision_is_dense_supervision() -> None:
    """A class listed twice in a row counts twice; rows without classes give zero."""
    sparse = SparsePosteriors(dim=3, splits=[0, 0, 3], classes=[1, 1, 2], weights=[0.25, 0.25, 1.0])
    dense = DenseTargets(values=[[0, 0, 0], [0, 0.5, 1.0]])
    output = np.log(np.array([[0.2, 0.3, 0.5], [0.1, 0.6, 0.3]], dtype=np.float32))

    for function in (linear, quadratic):
        one, other = function(output, sparse), function(output, dense)
        np.testing.assert_allclose(one.derivative, other.derivative, rtol=1e-6)
        assert one.total == pytest.approx(other.total)
        assert one.weight == other.weight


# ---- limits and constraints ----


def test_limits_of_components_and_of_all() -> None:
    """First each component's change is limited, then the change of all together."""
    change = limit_change({0: 9.0, 1: 16.0}, {0: 1.0, 1: 0.0}, 2.0, scale=0.5)

    assert change.limited == {0: pytest.approx(1.0 / 1.5)}
    norm = np.hypot(1.0, 2.0)
    assert change.global_factor == pytest.approx(2.0 / norm)
    assert change.factors[0] == pytest.approx(0.5 / 1.5 * 2.0 / norm)
    assert change.factors[1] == pytest.approx(0.5 * 2.0 / norm)


def test_change_that_is_not_finite() -> None:
    """An infinite norm, or one that is NaN, is returned as such."""
    for square in (float("inf"), float("nan")):
        assert not limit_change({0: square}, {0: 0.0}, 0.0, scale=1.0).is_finite


def make_orthonormal(matrix: np.ndarray, scale: float, steps: int = 1) -> None:
    """Makes steps towards orthonormal rows, or columns, of a matrix."""
    tape = NumpyTape()
    record_orthonormal_step(tape, matrix, scale)
    for _ in range(steps):
        tape.run()


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (60, 70)])
@pytest.mark.parametrize("scale", [-1.0, 0.7])
def test_orthonormal_steps_converge(shape: tuple[int, int], scale: float) -> None:
    """Repeated steps make the rows of the shorter side orthogonal, with the given norm if any."""
    matrix = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    matrix *= (0.7 if scale > 0 else 3.0) / np.sqrt(max(shape))
    make_orthonormal(matrix, scale, steps=400)

    m = matrix if shape[0] < shape[1] else matrix.T
    product = m @ m.T
    square = scale**2 if scale > 0 else product[0, 0]
    np.testing.assert_allclose(product, square * np.eye(len(m)), atol=1e-4 * square)


def test_first_orthonormal_step_does_not_scale() -> None:
    """If the scale is free, the step is orthogonal to the matrix."""
    matrix = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
    before = matrix.copy()
    make_orthonormal(matrix, -1.0)

    step = matrix - before
    assert abs(np.vdot(step, before)) < 1e-5 * np.linalg.norm(step) * np.linalg.norm(before)
    assert np.linalg.norm(step) > 0.01


def test_orthonormal_step_leaves_zeros_alone() -> None:
    """The matrix of an unused component stays zero, without warnings."""
    matrix = np.zeros((3, 5), np.float32)
    make_orthonormal(matrix, -1.0)

    assert not matrix.any()


# ---- steps ----


def test_plain_step() -> None:
    """A step is the learning rate times the gradient; the objective is the one before it."""
    nnet = network()
    trainer = Trainer(nnet, plain())

    objective = trainer.train_minibatch(example())["output"]

    change = vectorize(trainer.nnet) - vectorize(nnet)
    np.testing.assert_allclose(change, 0.1 * gradient(nnet, example()), rtol=1e-4)
    assert objective.weight == 40
    assert trainer.objectives["output"].per_frame == pytest.approx(objective.total / 40)


def test_l2_of_a_component() -> None:
    """The l2 term shrinks parameters by 2 l2 learning_rate for each sequence."""
    nnet = network(AFFINE + " l2-regularize=0.01")
    trainer = Trainer(nnet, plain(l2_regularize_factor=0.5))

    trainer.train_minibatch(example())

    before = vectorize(nnet)
    wanted = 0.1 * gradient(nnet, example()) - 2 * 0.01 * 0.1 * 2 * 0.5 * before
    np.testing.assert_allclose(vectorize(trainer.nnet) - before, wanted, rtol=1e-4, atol=1e-6)


def test_l2_of_what_a_minibatch_does_not_reach() -> None:
    """Where a minibatch has no gradient, the l2 term alone shrinks parameters, each time anew."""
    config = stacked(3, f"c {AFFINE} l2-regularize=0.01", objective="quadratic")
    other = "output-node name=other input=input objective=quadratic"
    nnet, rng = small_networks.network(config + other), np.random.default_rng(1)
    targets = [rng.standard_normal((20, 3)) for _ in range(2)]
    of_other = attrs.evolve(example(), outputs=[ExampleOutput.from_targets("other", targets)])
    trainer = Trainer(nnet, plain())
    trainer.train_minibatch(example())

    for _ in range(3):
        before = vectorize(trainer.nnet)
        trainer.train_minibatch(of_other)

        wanted = -2 * 0.01 * 0.1 * 2 * before
        np.testing.assert_allclose(vectorize(trainer.nnet) - before, wanted, atol=1e-6)


def test_momentum() -> None:
    """The second change is its gradient's, plus the momentum times the first change."""
    options = plain(momentum=0.75, learning_rate=0.01)
    trainer = Trainer(network(), options)
    networks = [trainer.nnet]
    for seed in range(2):
        trainer.train_minibatch(example(seed=seed))
        networks.append(trainer.nnet)

    gradients = [gradient(networks[seed], example(seed=seed)) for seed in range(2)]
    changes = [vectorize(networks[k + 1]) - vectorize(networks[k]) for k in range(2)]
    np.testing.assert_allclose(changes[0], 0.01 * 0.25 * gradients[0], rtol=1e-3)
    np.testing.assert_allclose(
        changes[1], 0.01 * 0.25 * (0.75 * gradients[0] + gradients[1]), rtol=1e-3
    )


@pytest.mark.parametrize(
    ("component", "limit", "expected"),
    [("max-change=0.5", 0.0, 0.5), ("max-change=0.5", 0.2, 0.2), ("", 0.3, 0.3)],
)
def test_norm_of_a_limited_step(component: str, limit: float, expected: float) -> None:
    """A step that is too long gets the norm of the limit, and the summary says so."""
    nnet = network(f"{AFFINE} {component}")
    trainer = Trainer(nnet, plain(max_param_change=limit))

    trainer.train_minibatch(example())

    norm = np.linalg.norm(vectorize(trainer.nnet) - vectorize(nnet))
    assert norm == pytest.approx(expected, rel=1e-4)
    assert "enforced on 100 %" in trainer.summary()


def test_step_that_is_not_finite(caplog: pytest.LogCaptureFixture) -> None:
    """A step that is not finite is left out with a warning, and does not affect the next one."""
    nnet = network()
    trainer = Trainer(nnet, plain(momentum=0.5), objective=overflowing(0))
    trainer.train_minibatch(example())

    np.testing.assert_array_equal(vectorize(trainer.nnet), vectorize(nnet))
    assert trainer.num_skipped == 1
    assert "not finite" in caplog.text
    trainer.train_minibatch(example())
    change = vectorize(trainer.nnet) - vectorize(nnet)
    np.testing.assert_allclose(change, 0.05 * gradient(nnet, example()), rtol=1e-4)


@pytest.mark.parametrize("spoilt", [0, 2, 12])
def test_natural_gradient_goes_on_after_a_step_that_is_not_finite(spoilt: int) -> None:
    """Derivatives whose squares overflow are not an error, and later steps reach the solution."""
    check_that_natural_gradient_goes_on(spoilt, "cpu")


def check_that_natural_gradient_goes_on(spoilt: int, device: str | Platform) -> None:
    """Trains with derivatives that are too large in one minibatch."""
    nnet = network(f"NaturalGradient{AFFINE}")
    options = TrainerOptions(learning_rate=0.01)
    trainer = Trainer(nnet, options, device, objective=overflowing(spoilt))
    for number in range(60):
        trainer.train_minibatch(example(seed=number))

    assert trainer.num_skipped == 1
    assert np.abs(gradient(trainer.nnet, example())).max() < 1e-2


def test_objective_of_the_user() -> None:
    """A function of all outputs replaces the nodes' objectives, with any kind of supervision."""
    seen: list[object] = []

    def objective(
        outputs: Mapping[str, np.ndarray], example: TrainingExample
    ) -> dict[str, Objective]:
        seen.append(example.outputs[0].supervision)
        output = outputs["output"]
        return {
            "output": Objective(
                total=float(output.sum()),
                weight=2.0,
                derivative=np.ones_like(output),
                auxiliary=1.0,
            )
        }

    trainer = Trainer(network(), plain(), objective=objective)
    io = ExampleOutput(name="output", indexes=[[0, 0, 0], [0, 1, 0]], supervision="a graph")
    inputs = ExampleInput.from_sequences("input", [np.ones((2, 3))])
    before = trainer.nnet.component("c").bias_params

    trainer.train_minibatch(TrainingExample(inputs=[inputs], outputs=[io]))

    assert seen == ["a graph"]
    np.testing.assert_allclose(trainer.nnet.component("c").bias_params - before, 0.2, rtol=1e-5)
    assert "+ 0.5 = " in trainer.summary()


def test_training_finds_a_linear_map() -> None:
    """With natural gradient and momentum, the error of a solvable problem vanishes."""
    trainer = Trainer(
        network(f"NaturalGradient{AFFINE}"), TrainerOptions(learning_rate=0.01, momentum=0.5)
    )

    for seed in range(60):
        objective = trainer.train_minibatch(example(seed=seed))["output"]

    assert -objective.total / objective.weight < 1e-6


def test_computations_are_reused() -> None:
    """Examples of one shape share a computation; the number of kept computations is limited."""
    trainer = Trainer(network(), plain(max_computations=2, learning_rate=0.001))

    for frames in (5, 6, 5, 7, 5, 6):
        trainer.train_minibatch(example(frames=frames))

    assert trainer.num_minibatches == 6
    requests = trainer._computers.requests
    assert [len(request.inputs[0].indexes) // 2 for request in requests] == [5, 6]


def test_computations_of_evaluations_are_few() -> None:
    """An evaluation of examples of many shapes keeps the memory of the latest ones."""
    evaluator = Evaluator(network())

    for frames in range(5, 20):
        evaluator.add(example(frames=frames))

    assert evaluator.objectives["output"].minibatches == 15
    assert len(evaluator._computers.requests) == MOST_COMPUTERS


def test_batch_norm_forgets() -> None:
    """Each step scales batch-norm's count of rows, so that averages are recent."""
    norm, affine = "b BatchNorm dim=3", "c Affine input-dim=3 output-dim=2"
    nnet = small_networks.network(stacked(3, norm, affine, objective="quadratic"))
    trainer = Trainer(nnet, plain(batchnorm_stats_scale=0.5))
    for seed in range(2):
        trainer.train_minibatch(example(seed=seed))

    first, second = (example(seed=seed).inputs[0].values.mean(axis=0) for seed in range(2))
    component = trainer.nnet.component("b")
    assert component.count == pytest.approx(40 * 0.5 + 40 * 0.25)
    np.testing.assert_allclose(component.stats_mean, (first + 2 * second) / 3, atol=1e-6)


# ---- errors ----


NUMBERS = {
    field.name: field.type
    for field in attrs.fields(TrainerOptions)
    if field.type in ("float", "float | None", "int")
}


@pytest.mark.parametrize("name", NUMBERS)
def test_options_that_are_no_numbers(name: str) -> None:
    """Numbers must be finite in single precision; counts must be integers."""
    wrong: list[object] = [float("nan"), float("inf"), "1"]
    wrong += [1.5, -1] if NUMBERS[name] == "int" else [1e39, 10**400]
    for value in wrong:
        message = f"^{name} must be .* {re.escape(f'(got {value!r})')}$"
        with pytest.raises(TrainingError, match=message):
            TrainerOptions(**{name: value})


@pytest.mark.parametrize(
    "name", [field.name for field in attrs.fields(TrainerOptions) if field.type == "bool"]
)
def test_switches(name: str) -> None:
    """A switch is True or False; the word "no" does not count as True."""
    with pytest.raises(TrainingError, match=rf"{name} must be True or False .got 'no'.$"):
        TrainerOptions(**{name: "no"})


def test_test_mode_keeps_statistics() -> None:
    """With batch-norm in test mode, training uses its statistics and keeps them."""
    affine, norm = "a Affine input-dim=2 output-dim=2", "b BatchNorm dim=2"
    nnet = small_networks.network(stacked(2, affine, norm, objective="quadratic"))
    known = nnet.component("b").replace(count=64.0, stats_mean=[1.0, 2.0], stats_var=[3.0, 4.0])
    nnet = set_test_mode(nnet.with_components({"b": known}))
    trainer = Trainer(nnet, TrainerOptions(learning_rate=0.01))
    batch = example_of([np.ones((4, 2))], [np.zeros((4, 2))])

    first, second = trainer.train_minibatch(batch), trainer.train_minibatch(batch)

    after = trainer.nnet.component("b")
    assert after.count == 64.0
    np.testing.assert_array_equal(after.stats_mean, [1.0, 2.0])
    np.testing.assert_array_equal(after.stats_var, [3.0, 4.0])
    assert second["output"].total > first["output"].total


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_freezing_and_thawing(momentum: float) -> None:
    """Components whose rate was 0 train from the first minibatch with another one, and back."""
    trainer = Trainer(network(), plain(learning_rate=0.0, momentum=momentum))
    changed = []
    for rate, seed in ((0.0, 0), (0.01, 0), (0.0, 0), (0.0, 1), (0.01, 1)):
        trainer.set_learning_rate(rate)
        before = trainer.nnet
        trainer.train_minibatch(example(seed=seed, frames=20 + seed))
        change = vectorize(trainer.nnet) - vectorize(before)
        if rate:
            wanted = (
                rate * (1.0 - momentum) * gradient(before, example(seed=seed, frames=20 + seed))
            )
            np.testing.assert_allclose(change, wanted, rtol=1e-3)
        changed.append(bool(change.any()))

    assert changed == [False, True, False, False, True]


def test_new_dropout() -> None:
    """While dropout drops everything, only the bias after it is trained."""
    dropout, affine = "d Dropout dim=2 dropout-proportion=0.0", "a Affine input-dim=2 output-dim=2"
    nnet = small_networks.network(stacked(2, dropout, affine, objective="quadratic"))
    batch = example_of([np.ones((4, 2))], [np.ones((4, 2))])
    trainer = Trainer(nnet, TrainerOptions(learning_rate=0.1))
    changed = []
    for proportion in (0.0, 1.0, 0.0):
        trainer.set_dropout(proportion)
        before = trainer.nnet.component("a").linear_params
        trainer.train_minibatch(batch)
        changed.append(not np.array_equal(before, trainer.nnet.component("a").linear_params))

    assert changed == [True, False, True]
    assert trainer.nnet.component("d").dropout_proportion == 0.0


def test_evaluation() -> None:
    """An evaluation gives objective and accuracy of the next minibatch, without a step."""
    trainer = Trainer(network(), plain())
    before = vectorize(trainer.nnet)
    labels = ExampleOutput.from_labels("output", [[0] * 20] * 2, 2)
    labelled = attrs.evolve(example(), outputs=[labels])

    found = trainer.evaluate(labelled, test_mode=False)["output"]

    np.testing.assert_array_equal(vectorize(trainer.nnet), before)
    assert found.accuracy is not None
    assert 0.0 <= found.accuracy.per_frame <= 1.0
    assert found.accuracy.weight.tolist()[0] == len(labelled.outputs[0].indexes)
    assert found.objective.total == pytest.approx(trainer.train_minibatch(labelled)["output"].total)


def test_example_that_an_evaluation_refuses() -> None:
    """An example whose supervision does not fit leaves no statistics."""
    config = stacked(3, f"c {AFFINE}", "n BatchNorm dim=2", objective="quadratic")
    nnet = small_networks.network(config)
    labels = ExampleOutput.from_labels("output", [[0] * 20] * 2, 5)
    for gradient in (False, True):
        evaluator, other = (
            Evaluator(nnet, component_stats=True, gradient=gradient) for _ in range(2)
        )
        with pytest.raises(ExampleError, match="expected supervision of the shape"):
            evaluator.add(attrs.evolve(example(), outputs=[labels]))
        for each in (evaluator, other):
            each.add(example())
        assert evaluator.nnet.to_bytes() == other.nnet.to_bytes()
        assert np.array_equal(evaluator.gradient, other.gradient)


def test_accuracy_of_infinite_weights() -> None:
    """A row of infinite weight whose class is wrong counts as wrong, without a warning."""
    targets = DenseTargets(values=np.array([[np.inf, 0.0], [0.0, 1.0]], dtype=np.float32))

    found = accuracy(np.array([[0.0, 1.0], [0.0, 1.0]], dtype=np.float32), targets)

    assert (found.right.tolist(), found.weight.tolist()) == ([0.0, 1.0], [np.inf, 1.0])


def test_backstitch() -> None:
    """Every other minibatch has a step of -a, followed by one of 1 + a."""
    options = plain(
        learning_rate=0.001, backstitch_training_scale=0.5, backstitch_training_interval=2
    )
    trainer = Trainer(network(), options)

    first, second = trainer.train_minibatch(example()), trainer.train_minibatch(example())

    assert set(first) == {"output", "output_backstitch"}
    assert set(second) == {"output"}
    assert first["output_backstitch"].total < first["output"].total < second["output"].total
    assert trainer.num_updates == 3


def test_random_numbers_that_come_again() -> None:
    """Both steps of backstitch use the same random decisions."""
    nnet = DeviceNnet(network())
    kernel = nnet.kernel(0)
    for _ in range(3):
        kernel.chance(0.5)
    state = nnet.random_state

    first = [kernel.chance(0.5) for _ in range(100)]
    nnet.random_state = state

    assert [kernel.chance(0.5) for _ in range(100)] == first
    assert 20 < sum(first) < 80


@pytest.mark.parametrize("backstitch", [0.0, 0.3])
def test_a_trace(tmp_path: Path, backstitch: float) -> None:
    """A trace has each pass, also after a checkpoint, and changes no parameter."""
    nnet = small_networks.network(NETWORK_WITH_ALL)
    options = TrainerOptions(
        max_param_change=1.0, backstitch_training_scale=backstitch, backstitch_training_interval=1
    )
    tracer = Tracer()
    plain, traced = Trainer(nnet, options), Trainer(nnet, options, trace=tracer)
    for trainer in (plain, traced):
        trainer.train_minibatch(example())
        trainer.save(tmp_path / "checkpoint")
    second = Tracer()
    resumed = Trainer.load(tmp_path / "checkpoint", trace=second)
    for trainer in (plain, traced, resumed):
        trainer.train_minibatch(example(seed=1))

    np.testing.assert_array_equal(vectorize(plain.nnet), vectorize(traced.nnet))
    np.testing.assert_array_equal(vectorize(plain.nnet), vectorize(resumed.nnet))
    passes = 2 if backstitch else 1
    for trace, minibatches in ((tracer.trace(), 2), (second.trace(), 1)):
        kinds = {command.kind for _, command in trace.commands}
        assert {"Propagate", "Backprop", "StoreStats"} <= kinds
        assert {command.runs for _, command in trace.commands} == {minibatches * passes}
        assert trace.fault is None


CACHED_TRAINING = """
import sys
import numpy as np
import nnet3
from nnet3_training import Evaluator, ExampleInput, ExampleOutput, Trainer, TrainingExample
x = np.sin(np.arange(60.0)).reshape(20, 3)
example = TrainingExample(
    inputs=[ExampleInput.from_sequences("input", [x])],
    outputs=[ExampleOutput.from_targets("output", [x[:, :2]])],
)
nnet = nnet3.read_nnet(sys.argv[1])
trainer = Trainer(nnet, cache_dir=sys.argv[2])
trainer.train_minibatch(example)
trainer.evaluate(example)
Evaluator(nnet, cache_dir=sys.argv[2]).add(example)
parts = ("nnet3_graph", "nnet3_compiler.compiler", "nnet3_optimizer.pipeline")
print(*(name for name in parts if name in sys.modules))
print(sum(float(abs(each).sum()) for each in trainer.nnet.state_dict().values()))
"""
"""Trains, and prints which parts of compiling it imported."""


def test_training_with_known_computations_compiles_nothing(tmp_path: Path) -> None:
    """A second process makes the same step without the stages of compiling."""
    write_nnet(network(), tmp_path / "final.raw")
    arguments = [str(tmp_path / "final.raw"), str(tmp_path / "cache")]
    command = [sys.executable, "-c", CACHED_TRAINING, *arguments]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        for _ in range(2)
    )
    assert first[0] == "nnet3_graph nnet3_compiler.compiler nnet3_optimizer.pipeline"
    assert second == ["", first[1]]
