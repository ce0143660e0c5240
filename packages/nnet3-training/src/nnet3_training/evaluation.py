"""Evaluation of networks on examples: objectives, accuracies, gradients and statistics."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from nnet3 import CachingCompiler
from nnet3_descriptors import Nnet
from nnet3_descriptors.components import BatchNormComponent
from nnet3_runtime_cuda import DeviceNnet, NnetComputer
from nnet3_runtime_cuda.cuda.platform import Platform

from nnet3_training.examples import DenseTargets, SparsePosteriors, TrainingExample
from nnet3_training.latest_computers import MOST_COMPUTERS, LatestComputers
from nnet3_training.objectives import (
    GivenObjective,
    Objective,
    ObjectiveSum,
    as_objective_function,
    objectives_at,
    prepared,
    takes_device_arrays,
)

Array = npt.NDArray[Any]


@attrs.frozen(kw_only=True, eq=False)
class Accuracy:
    """The accuracy: how often the best column of an output is the best one of its supervision.

    Attributes:
        right: (dim,), for each best column of the supervision, the weight of the rows whose output
            has the same best column.
        weight: (dim,), the weight of all rows.
    """

    right: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]

    @property
    def per_frame(self) -> float:
        """The weighted share of right rows; NaN if there is no weight."""
        total = float(self.weight.sum())
        return float(self.right.sum()) / total if total else float("nan")

    def __add__(self, other: Accuracy) -> Accuracy:
        """Both together."""
        return Accuracy(right=self.right + other.right, weight=self.weight + other.weight)


@attrs.frozen(kw_only=True)
class Evaluation:
    """The evaluation of an output.

    Attributes:
        objective: The objective.
        accuracy: The accuracy; None if the supervision does not name classes.
    """

    objective: Objective
    accuracy: Accuracy | None


def accuracy(output: Array, supervision: DenseTargets | SparsePosteriors) -> Accuracy:
    """The accuracy of an output, (rows, dim); the weight of a row is the sum of its supervision."""
    values = supervision.values
    weights = values.sum(axis=1, dtype=np.float64)
    wanted = values.argmax(axis=1)
    is_right = wanted == np.asarray(output).argmax(axis=1)
    dim = values.shape[1]
    right = np.bincount(wanted, weights=np.where(is_right, weights, 0.0), minlength=dim)
    weight = np.bincount(wanted, weights=weights, minlength=dim)
    return Accuracy(right=right.astype(np.float64), weight=weight.astype(np.float64))


def in_test_mode(nnet: Nnet, *, batchnorm: bool, dropout: bool) -> Nnet:
    """The network with batch-norm, or dropout, or both in test mode; else they stay as they are."""
    return nnet.with_components(
        {
            name: component.with_test_mode(True)
            for name, component in zip(nnet.component_names, nnet.components, strict=True)
            if (batchnorm if isinstance(component, BatchNormComponent) else dropout)
        }
    )


class Evaluator:
    """Computes a network on examples, and sums up.

    Attributes:
        objectives: By output, the sum of the objective.
        accuracies: By output, the accuracy of all examples.
        gradient: (num_parameters,), the plain gradient of the sum of all objectives, if wanted.
    """

    def __init__(
        self,
        nnet: Nnet,
        *,
        device: str | Platform = "cpu",
        objective: GivenObjective | None = None,
        gradient: bool = False,
        component_stats: bool = False,
    ) -> None:
        """Puts a network on a device.

        Args:
            nnet: The network, in test mode or not.
            device: "cpu", "cuda", "cuda:<number>", or a platform that is open.
            objective: The objective function, or names; by default the objectives of the output
                nodes. See `as_objective_function`.
            gradient: Whether to sum up the gradient.
            component_stats: Whether components record statistics.

        Raises:
            DeviceError: there is no such device, or its driver or libraries are missing.
            ExampleError: there is no objective of that name.
        """
        self.objectives: dict[str, ObjectiveSum] = {}
        self.accuracies: dict[str, Accuracy] = {}
        self.gradient = np.zeros(nnet.num_parameters if gradient else 0)
        self._wants_gradient = gradient
        self._component_stats = component_stats
        self._objective = as_objective_function(objective, nnet)
        self._device_nnet = DeviceNnet(nnet, device=device, trainable=gradient)
        self._compiler = CachingCompiler(nnet)
        self._computers = LatestComputers(self._device_nnet, MOST_COMPUTERS)

    def __repr__(self) -> str:
        """The objective at each output so far."""
        totals = (f"{total.per_frame:.6g} at '{name}'" for name, total in self.objectives.items())
        return f"<Evaluator: {', '.join(totals) or 'nothing evaluated'}>"

    @property
    def compile_seconds(self) -> dict[str, float]:
        """The time of each stage of compiling so far; see `CachingCompiler.seconds`."""
        return dict(self._compiler.seconds)

    @property
    def nnet(self) -> Nnet:
        """The network with its current statistics."""
        return self._device_nnet.current()

    def outputs(self, example: TrainingExample) -> dict[str, npt.NDArray[np.float32]]:
        """The outputs of the network, (rows, dim) by name, for the rows of an example.

        Raises:
            RunError: inputs do not fit, or are not finite.
            RequestError, NotComputableError: the outputs cannot be computed from the inputs.
        """
        return self._computer(example).forward({io.name: io.values for io in example.inputs})

    def add(self, example: TrainingExample) -> dict[str, Evaluation]:
        """Evaluates an example.

        Raises:
            ExampleError: this is no example, the supervision does not fit the network, or the
                objective function gives something else than objectives.
            RunError, RequestError, NotComputableError: see `outputs`.
        """
        example = prepared(self._objective, example)
        known = {
            io.name: io.supervision
            for io in example.outputs
            if isinstance(io.supervision, DenseTargets | SparsePosteriors)
        }
        computer = self._computer(example)
        outputs = computer.forward(
            {io.name: io.values for io in example.inputs},
            on_device=takes_device_arrays(self._objective) and not known,
        )
        found = objectives_at(self._objective, outputs, example)
        if self._wants_gradient:
            computer.backward({name: each.derivative for name, each in found.items()})
            self.gradient += self._device_nnet.direction
        result = {}
        for name, each in found.items():
            share = None
            if name in known:
                share = accuracy(outputs[name], known[name])
                before = self.accuracies.get(name)
                self.accuracies[name] = share if before is None else before + share
            self.objectives.setdefault(name, ObjectiveSum()).add(each)
            result[name] = Evaluation(objective=each, accuracy=share)
        return result

    def _computer(self, example: TrainingExample) -> NnetComputer:
        request = example.request(
            need_derivatives=self._wants_gradient, store_component_stats=self._component_stats
        )
        return self._computers.of(request, self._compiler.compile)
