"""Public functions raise the errors that their docstrings name."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from nnet3_descriptors import Nnet
from nnet3_descriptors.components import AffineComponent
from nnet3_runtime_cuda import RunError, UnsupportedComponentError
from nnet3_runtime_cuda.kernels import kernel_class, registry
from nnet3_training import (
    DenseTargets,
    ExampleInput,
    ExampleOutput,
    SparsePosteriors,
    Trainer,
    TrainingExample,
    merge_examples,
)
from small_networks import network, stacked

LABELS = ExampleOutput.from_labels("output", [[0, 1, 2]], 3)
FRAMES = ExampleInput.from_sequences("input", [np.ones((3, 4))])


def nnet(line: str = "") -> Nnet:
    """An affine map with further fields."""
    return network(stacked(4, f"c Affine input-dim=4 output-dim=3 {line}"))


def example(**changes: tuple[object, ...]) -> TrainingExample:
    """One sequence with labels."""
    return TrainingExample(**({"inputs": [FRAMES], "outputs": [LABELS]} | changes))


def inputs(dim: int) -> tuple[ExampleInput, ...]:
    """The frames of the example with another dimension."""
    return (ExampleInput.from_sequences("input", [np.ones((3, dim))]),)


@pytest.mark.parametrize(
    ("documented", "errors"),
    [
        (Trainer.__init__, "TrainingError DeviceError"),
        (Trainer.train_minibatch, "RequestError RunError"),
        (TrainingExample.request, "RequestError"),
        (ExampleInput, "ExampleError"),
        (ExampleInput.from_sequences, "ExampleError"),
        (ExampleOutput.from_targets, "ExampleError"),
        (ExampleOutput.from_labels, "ExampleError"),
        (DenseTargets, "ExampleError"),
        (SparsePosteriors, "ExampleError"),
        (merge_examples, "ExampleError"),
    ],
)
def test_errors(documented: object, errors: str) -> None:
    """A docstring names the errors that errors.txt has for wrong arguments."""
    named = inspect.getdoc(documented).partition("Raises:")[2]

    assert [error for error in errors.split() if error not in named] == []


@pytest.mark.parametrize("variable", ["NNET3_BLAS", "NNET3_PANELS", "NNET3_TILES"])
def test_environment(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer, which puts a network on a device, names the error of the environment."""
    monkeypatch.setenv(variable, "foo")

    assert "RunError" in inspect.getdoc(Trainer.__init__)
    with pytest.raises(RunError, match=f"^{variable}: expected .*, found 'foo'$"):
        Trainer(nnet())


def test_components_without_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for an unsupported component appears where it would be computed."""
    kernel_class(nnet().components[0])  # registers the kernel
    monkeypatch.delitem(registry._kernels, AffineComponent)
    trainer = Trainer(nnet())

    assert "UnsupportedComponentError" in inspect.getdoc(Trainer.train_minibatch)
    with pytest.raises(UnsupportedComponentError, match="component 'c' has the type"):
        trainer.train_minibatch(example())
