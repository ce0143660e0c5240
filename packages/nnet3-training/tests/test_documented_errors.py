"""Public functions raise the errors that their docstrings name."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import pytest
from nnet3_computation import RequestError
from nnet3_descriptors import Nnet, parse_config
from nnet3_descriptors.components import AffineComponent
from nnet3_runtime_cuda import DeviceError, RunError, UnsupportedComponentError
from nnet3_runtime_cuda.kernels import kernel_class, registry
from nnet3_training import (
    DenseTargets,
    ExampleError,
    ExampleInput,
    ExampleOutput,
    SparsePosteriors,
    Trainer,
    TrainingError,
    TrainingExample,
    merge_examples,
)

LABELS = ExampleOutput.from_labels("output", [[0, 1, 2]], 3)
FRAMES = ExampleInput.from_sequences("input", [np.ones((3, 4))])


def nnet(line: str = "") -> Nnet:
    """An affine map with further fields."""
    text = f"""
    input-node name=input dim=4
    component name=c type=AffineComponent input-dim=4 output-dim=3 {line}
    component-node name=c component=c input=input
    output-node name=output input=c
    """
    return parse_config(text, rng=np.random.default_rng(0))


def example(**changes: tuple[object, ...]) -> TrainingExample:
    """One sequence with labels."""
    return TrainingExample(**({"inputs": [FRAMES], "outputs": [LABELS]} | changes))


def inputs(dim: int) -> tuple[ExampleInput, ...]:
    """The frames of the example with another dimension."""
    return (ExampleInput.from_sequences("input", [np.ones((3, dim))]),)


@pytest.mark.parametrize(
    ("documented", "call", "error"),
    [
        (Trainer.__init__, lambda: Trainer(nnet("learning-rate=inf")), TrainingError),
        (Trainer.__init__, lambda: Trainer(nnet(), precision="tf32"), DeviceError),
        (
            Trainer.train_minibatch,
            lambda: Trainer(nnet()).train_minibatch(example(outputs=())),
            RequestError,
        ),
        (
            Trainer.train_minibatch,
            lambda: Trainer(nnet()).train_minibatch(example(inputs=inputs(5))),
            RunError,
        ),
        (
            Trainer.train_minibatch,
            lambda: Trainer(nnet(), objective=lambda outputs, example: {}).train_minibatch(
                example()
            ),
            RunError,
        ),
        (TrainingExample.request, lambda: example(inputs=()).request(), RequestError),
        (ExampleInput, lambda: ExampleInput(name="i", indexes=[], values=["a"]), ExampleError),
        (
            ExampleInput,
            lambda: ExampleInput(name="i", indexes=[[0, 0.5, 0]], values=[[1.0]]),
            ExampleError,
        ),
        (
            ExampleInput.from_sequences,
            lambda: ExampleInput.from_sequences("i", [[[1.0], [1.0, 2.0]]]),
            ExampleError,
        ),
        (
            ExampleOutput.from_targets,
            lambda: ExampleOutput.from_targets("o", [[1.0]]),
            ExampleError,
        ),
        (
            ExampleOutput.from_labels,
            lambda: ExampleOutput.from_labels("o", [[0, [1]]], 3),
            ExampleError,
        ),
        (DenseTargets, lambda: DenseTargets(values="a"), ExampleError),
        (
            SparsePosteriors,
            lambda: SparsePosteriors(dim=1, splits=[0, 1], classes=["a"], weights=[1.0]),
            ExampleError,
        ),
        (
            SparsePosteriors,
            lambda: SparsePosteriors(dim=1, splits=[0, 1], classes=[0], weights=["a"]),
            ExampleError,
        ),
        (
            merge_examples,
            lambda: merge_examples([example(), example(inputs=inputs(5))]),
            ExampleError,
        ),
        (
            merge_examples,
            lambda: merge_examples(
                [example(), example(outputs=[ExampleOutput.from_labels("output", [[0] * 3], 4)])]
            ),
            ExampleError,
        ),
    ],
)
def test_errors(documented: object, call: Callable[[], object], error: type[Exception]) -> None:
    """A wrong argument raises an error that the docstring names, and no other."""
    assert error.__name__ in inspect.getdoc(documented).partition("Raises:")[2]

    with pytest.raises(error) as raised:
        call()

    assert raised.type is error


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
