"""Public functions raise the errors that their docstrings name."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from nnet3_descriptors import Nnet
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
        (Trainer.__init__, "TrainingError DeviceError RunError"),
        (Trainer.train_minibatch, "RequestError RunError UnsupportedComponentError"),
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
