"""Objective functions, which training maximises, and their sums over a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Nnet

from nnet3_training.errors import ExampleError
from nnet3_training.examples import DenseTargets, SparsePosteriors, TrainingExample

Array = npt.NDArray[Any]


@attrs.frozen(kw_only=True, eq=False)
class Objective:
    """An objective function at one output, for one minibatch.

    Attributes:
        total: Its value, summed over frames.
        weight: The weight of the frames: `total / weight` is the objective per frame.
        derivative: (rows, dim), the derivative of the total with respect to the output.
        auxiliary: A part that is shown apart, such as a regularisation; not in `total`.
    """

    total: float
    weight: float
    derivative: Array
    auxiliary: float = 0.0


ObjectiveFunction = Callable[[Mapping[str, Array], TrainingExample], Mapping[str, Objective]]
"""From the outputs of the network, (rows, dim) by name, and the example, the objective at each
output. It sees all outputs at once, as the objective at one may follow from another (the posteriors
of a 'chain' numerator, which also train the cross-entropy output)."""


@runtime_checkable
class PreparesExamples(Protocol):
    """An objective function that needs more outputs computed than an example has."""

    def prepared(self, example: TrainingExample) -> TrainingExample:
        """The example with the outputs that the function wants to see."""
        ...


@attrs.frozen
class NodeObjectives:
    """What the output nodes of a network ask for: the linear or the quadratic objective.

    Attributes:
        nnet: The network.
    """

    nnet: Nnet

    def __call__(
        self, outputs: Mapping[str, Array], example: TrainingExample
    ) -> dict[str, Objective]:
        """The objective at each output of the example.

        Raises:
            ExampleError: the supervision is of another kind, or of another shape than the output.
        """
        kinds = {node.name: node.objective for node in self.nnet.output_nodes}
        result = {}
        for io in example.outputs:
            output, supervision = outputs[io.name], io.supervision
            if not isinstance(supervision, DenseTargets | SparsePosteriors):
                raise ExampleError(
                    f"output '{io.name}': expected DenseTargets or SparsePosteriors, or an "
                    f"objective function for {type(supervision).__name__}"
                )
            if supervision.shape != output.shape:
                raise ExampleError(
                    f"output '{io.name}': expected supervision of the shape {output.shape}, found "
                    f"{supervision.shape}"
                )
            function = linear if kinds[io.name] == "linear" else quadratic
            result[io.name] = function(output, supervision)
        return result


def linear(output: Array, supervision: DenseTargets | SparsePosteriors) -> Objective:
    """The sum of output * supervision: the cross-entropy, if the output is a log-softmax.

    The weight is the sum of the supervision.
    """
    if isinstance(supervision, DenseTargets):
        values = supervision.values
        total = np.vecdot(output, values).sum(dtype=np.float64)
        return Objective(
            total=float(total), weight=float(values.sum(dtype=np.float64)), derivative=values
        )
    rows, classes, weights = supervision.rows, supervision.classes, supervision.weights
    derivative = np.zeros_like(output)
    np.add.at(derivative, (rows, classes), weights)
    total = np.vdot(output[rows, classes].astype(np.float64), weights.astype(np.float64))
    return Objective(
        total=float(total), weight=float(weights.sum(dtype=np.float64)), derivative=derivative
    )


def quadratic(output: Array, supervision: DenseTargets | SparsePosteriors) -> Objective:
    """-1/2 the sum of (supervision - output)^2; the weight is the number of rows."""
    if isinstance(supervision, DenseTargets):
        difference = supervision.values - output
    else:
        difference = -output
        np.add.at(difference, (supervision.rows, supervision.classes), supervision.weights)
    total = -0.5 * np.vecdot(difference, difference).sum(dtype=np.float64)
    return Objective(total=float(total), weight=float(len(output)), derivative=difference)


@attrs.define
class ObjectiveSum:
    """An objective summed over minibatches.

    Attributes:
        total: Sum of the objective.
        weight: Sum of the weights of the frames.
        auxiliary: Sum of the auxiliary part.
        minibatches: Number of minibatches.
    """

    total: float = 0.0
    weight: float = 0.0
    auxiliary: float = 0.0
    minibatches: int = 0

    def add(self, objective: Objective) -> None:
        """Adds a minibatch."""
        self.total += objective.total
        self.weight += objective.weight
        self.auxiliary += objective.auxiliary
        self.minibatches += 1

    @property
    def per_frame(self) -> float:
        """The objective per frame; not a number before there is one."""
        return self.total / self.weight if self.weight else float("nan")

    def __str__(self) -> str:
        text = f"{self.per_frame:.6g}"
        if self.auxiliary:
            part = self.auxiliary / self.weight
            text += f" + {part:.6g} = {self.per_frame + part:.6g}"
        return f"{text} over {self.weight:.6g} frames in {self.minibatches} minibatches"
