"""Evaluation of networks on examples: objectives, accuracies, gradients and statistics."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt
from nnet3 import CachingCompiler
from nnet3_computation import ComputationRequest, NnetComputation
from nnet3_descriptors import Nnet, components, values
from nnet3_runtime_cuda import DeviceNnet, NnetComputer, TrainingError, cuda

from nnet3_training import objectives
from nnet3_training.egs.examples import DenseTargets, SparsePosteriors, TrainingExample

if TYPE_CHECKING:
    from nnet3_runtime_cuda import Tracer


_STATISTICS = (
    "count",
    "value_avg",
    "deriv_avg",
    "oderiv_count",
    "oderiv_rms",
    "num_dims_self_repaired",
    "num_dims_processed",
    "self_repair_prob",
    "self_repair_total",
    "stats_mean",
    "stats_var",
    "num_clipped",
    "num_self_repaired",
    "num_backpropped",
    "num_zeroed",
    "count_zeroing_boundaries",
    "stats_count",
    "entropy_stats",
    "posterior_stats",
)
"""The fields of components that are statistics."""


def check_nnet(nnet: object) -> None:
    """Checks what a caller gives as a network.

    Raises:
        TrainingError: it is none.
    """
    if not isinstance(nnet, Nnet):
        raise TrainingError(
            f"expected a network (Nnet), found {type(nnet).__name__}: nnet3.read_nnet reads "
            "networks"
        )


def zero_component_stats(nnet: Nnet) -> Nnet:
    """The network with the statistics of its components set to zero.

    Batch-norm in test mode keeps its statistics, since it computes with them.
    """
    return nnet.with_components(
        {
            name: _zeroed(component)
            for name, component in zip(nnet.component_names, nnet.components, strict=True)
        }
    )


def _zeroed(component: components.Component) -> components.Component:
    if isinstance(component, components.CompositeComponent):
        return component.replace(components=tuple(map(_zeroed, component.components)))
    if isinstance(component, components.BatchNormComponent) and component.test_mode:
        return component  # in test mode it computes with its statistics
    names = {spec.name for spec in component.FIELDS}
    changes: dict[str, Any] = {}
    for name in _STATISTICS:
        if name in names:
            value = getattr(component, name)
            is_array = isinstance(value, np.ndarray)
            changes[name] = np.zeros_like(value) if is_array else type(value)(0)
    return component.replace(**changes) if changes else component


_LEAST: dict[type[components.Component], float] = {
    components.RectifiedLinearComponent: 0.001,
    components.SigmoidComponent: 0.05,
    components.TanhComponent: 0.2,
}
"""The average derivative below which a unit is saturated: Kaldi's thresholds of self-repair for
sigmoid and tanh; for a rectifier, the part of frames in which it is positive."""


def saturated_units(component: components.Component) -> tuple[int, int] | None:
    """Counts the units of a nonlinearity: those that are saturated or dead, and all.

    None if the component is not a nonlinearity that can saturate, or has no statistics.
    """
    least = _LEAST.get(type(component))
    if least is None or not getattr(component, "count", 0.0):
        return None
    averages = component.deriv_avg  # type: ignore[attr-defined]  # all three have them
    return (int((averages < least).sum()), averages.size) if averages.size else None


def saturation(nnet: Nnet) -> dict[str, float]:
    """For each component that can saturate, the share of its units that are saturated."""
    found = zip(nnet.component_names, map(saturated_units, nnet.components), strict=True)
    return {name: units[0] / units[1] for name, units in found if units is not None}


MOST_COMPUTERS = 8
"""The number of computers that stay by default."""


class LatestComputers:
    """Computers for the latest requests; each has its own memory, so only a few stay."""

    def __init__(self, device_nnet: DeviceNnet, most: int, trace: Tracer | None = None) -> None:
        """Begins without computers.

        Args:
            device_nnet: The network.
            most: The number of computers that stay.
            trace: See `NnetComputer`.
        """
        self._device_nnet, self._most, self._trace = device_nnet, most, trace
        # The latest is last. An OrderedDict would break if Ctrl-C came while it compares requests.
        self._computers: dict[ComputationRequest, NnetComputer] = {}

    @property
    def requests(self) -> tuple[ComputationRequest, ...]:
        """The requests whose computers there are; the latest is last."""
        return tuple(self._computers)

    def of(
        self, request: ComputationRequest, compile: Callable[[ComputationRequest], NnetComputation]
    ) -> NnetComputer:
        """The computer for a request; `compile` makes the computation if there is none."""
        computer = self._computers.pop(request, None)
        if computer is None:
            computation = compile(request)
            if len(self._computers) >= self._most:
                del self._computers[next(iter(self._computers))]
            computer = NnetComputer(self._device_nnet, computation, trace=self._trace)
        self._computers[request] = computer
        return computer

    def clear(self) -> None:
        """Forgets all computers."""
        self._computers.clear()


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

    objective: objectives.Objective
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
            if (batchnorm if isinstance(component, components.BatchNormComponent) else dropout)
        }
    )


class Evaluator(values.NotCopied):
    """Computes a network on examples, and sums up.

    Attributes:
        objectives: By output, the sum of the objective.
        accuracies: By output, the accuracy of all examples.
        gradient: (num_parameters,), the plain gradient of the sum of all objectives, if wanted; 0
            for components whose learning rate is 0.
    """

    _instead = "make one of its network"

    def __init__(
        self,
        nnet: Nnet,
        *,
        device: str | cuda.Platform = "cpu",
        objective: objectives.GivenObjective | None = None,
        gradient: bool = False,
        component_stats: bool = False,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Puts a network on a device.

        Args:
            nnet: The network, in test mode or not.
            device: "cpu", "cuda", "cuda:<number>", or a platform that is open.
            objective: The objective function, or names; by default the objectives of the output
                nodes. See `as_objective_function`.
            gradient: Whether to sum up the gradient.
            component_stats: Whether components record statistics.
            cache_dir: The folder with computations of earlier processes; see `Trainer`.

        Raises:
            DeviceError: there is no such device, or its driver or libraries are missing.
            ExampleError: there is no objective of that name.
            TrainingError: `nnet` is no `Nnet`.
        """
        check_nnet(nnet)
        self.objectives: dict[str, objectives.ObjectiveSum] = {}
        self.accuracies: dict[str, Accuracy] = {}
        self.gradient = np.zeros(nnet.num_parameters if gradient else 0)
        self._wants_gradient = gradient
        self._component_stats = component_stats
        self._objective = objectives.as_objective_function(objective, nnet)
        self._device_nnet = DeviceNnet(nnet, device=device, trainable=gradient)
        self._savepoint = self._device_nnet.savepoint()
        self._compiler = CachingCompiler(nnet, cache_dir=cache_dir)
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
        """Evaluates an example; after an error everything is as before.

        Raises:
            ExampleError: this is no example, the supervision does not fit the network, or the
                objective function gives something else than objectives.
            RunError, RequestError, NotComputableError: see `outputs`.
        """
        example = objectives.prepared(self._objective, example)
        known = {
            io.name: io.supervision
            for io in example.outputs
            if isinstance(io.supervision, DenseTargets | SparsePosteriors)
        }
        computer = self._computer(example)
        undo = self._savepoint.take()
        try:
            outputs = computer.forward(
                {io.name: io.values for io in example.inputs},
                on_device=objectives.takes_device_arrays(self._objective) and not known,
            )
            found = objectives.objectives_at(self._objective, outputs, example)
            if self._wants_gradient:
                computer.backward({name: each.derivative for name, each in found.items()})
            result = {
                name: Evaluation(
                    objective=each,
                    accuracy=accuracy(outputs[name], known[name]) if name in known else None,
                )
                for name, each in found.items()
            }
        except BaseException:
            undo()
            raise
        if self._wants_gradient:
            self.gradient += self._device_nnet.direction
        for name, each in result.items():
            if each.accuracy is not None:
                before = self.accuracies.get(name)
                self.accuracies[name] = each.accuracy if before is None else before + each.accuracy
            self.objectives.setdefault(name, objectives.ObjectiveSum()).add(each.objective)
        return result

    def _computer(self, example: TrainingExample) -> NnetComputer:
        request = example.request(
            need_derivatives=self._wants_gradient, store_component_stats=self._component_stats
        )
        return self._computers.of(request, self._compiler.compile)
