"""Objectives given by name, or as functions of arrays of any library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nnet3_descriptors import Nnet, vectorize
from nnet3_training import (
    Evaluator,
    ExampleInput,
    ExampleOutput,
    Objective,
    OutputObjectives,
    Trainer,
    TrainerOptions,
    TrainingExample,
)
from nnet3_training.objectives import ObjectiveSum, cross_entropy, linear
from small_networks import network, stacked


def network_with(objective: str = "quadratic") -> Nnet:
    """An affine map."""
    config = stacked(3, "a Affine input-dim=3 output-dim=4", objective=objective)
    return network(f"{config}output-node name=other input=a objective={objective}\n")


def example(*outputs: str) -> TrainingExample:
    """Frames of noise, with targets at some outputs."""
    rng = np.random.default_rng(0)
    targets = [rng.random((10, 4))]
    return TrainingExample(
        inputs=[ExampleInput.from_sequences("input", [rng.standard_normal((10, 3))])],
        outputs=[ExampleOutput.from_targets(name, targets) for name in outputs or ("output",)],
    )


class Tensor:
    """An array of another library that has only DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        """The array as DLPack."""
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device of the array."""
        return self.array.__dlpack_device__()


class Scalar:
    """A number of another library."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        return self.value


def squared_error(output: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
    """The quadratic objective."""
    difference = targets - output
    return -0.5 * float((difference**2).sum()), difference


def squared_error_of_tensors(output: Tensor, targets: Tensor) -> tuple[Scalar, Tensor]:
    """The quadratic objective with another library's arrays."""
    value, derivative = squared_error(np.from_dlpack(output), np.from_dlpack(targets))
    return Scalar(value), Tensor(derivative)


def trained(nnet: Nnet, objective: Any, **options: Any) -> np.ndarray:
    """The parameters after three steps."""
    trainer = Trainer(nnet, TrainerOptions(learning_rate=0.01), objective=objective, **options)
    for _ in range(3):
        trainer.train_minibatch(example())
    assert trainer.objectives["output"].weight == 30.0
    return vectorize(trainer.nnet)


@pytest.mark.parametrize(
    "objective",
    [
        "quadratic",
        {"output": "quadratic"},
        {"*": "quadratic"},
        {"output": squared_error},
        OutputObjectives({"output": squared_error_of_tensors}, convert=Tensor),
    ],
)
def test_same_objective_in_several_ways(objective: object) -> None:
    """A name, a function of NumPy arrays, and one of another library's arrays train alike."""
    np.testing.assert_allclose(
        trained(network_with("linear"), objective), trained(network_with(), None), rtol=1e-6
    )


def test_equal_objectives_have_equal_hashes() -> None:
    """Objectives of outputs are keys, as other objective functions are."""
    assert (
        len({OutputObjectives({"output": "linear"}), OutputObjectives({"output": "linear"})}) == 1
    )


def test_outputs_that_are_not_named() -> None:
    """Outputs that are not named keep the objectives of their nodes."""
    evaluator = Evaluator(network_with(), objective={"output": "linear"})
    found = evaluator.add(example("output", "other"))
    of_nodes = Evaluator(network_with()).add(example("output", "other"))

    assert found["other"].objective.total == of_nodes["other"].objective.total
    assert found["output"].objective.total != of_nodes["output"].objective.total


def test_cross_entropy() -> None:
    """Cross-entropy is the linear objective of the log-softmax."""
    rng = np.random.default_rng(1)
    output = (5 * rng.standard_normal((6, 4))).astype(np.float32)
    rows = ExampleOutput.from_labels("output", [[0, 1, 2, 3, 0, 1]], 4).supervision
    found = cross_entropy(output, rows)

    logs = output - np.log(np.exp(output.astype(float)).sum(axis=1, keepdims=True))
    expected = linear(logs, rows)
    assert found.total == pytest.approx(expected.total, rel=1e-5)
    assert found.weight == expected.weight == 6.0


def test_sum_without_weight() -> None:
    """The sum of an objective without weight but with an auxiliary part prints."""
    total = ObjectiveSum()
    total.add(Objective(total=0.0, weight=0.0, derivative=None, auxiliary=1.0))

    assert str(total) == "nan + nan = nan over 0 frames in 1 minibatches"
