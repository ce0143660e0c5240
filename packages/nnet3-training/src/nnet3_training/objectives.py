"""Objective functions, which training maximises, and their sums over a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Nnet

from nnet3_training.egs.examples import (
    DenseTargets,
    ExampleOutput,
    SparsePosteriors,
    TrainingExample,
)
from nnet3_training.errors import ExampleError

Array = npt.NDArray[Any]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise ExampleError(f"expected a number of an objective: {error}") from error


@attrs.frozen(kw_only=True, eq=False)
class Objective:
    """An objective function at one output, for one minibatch.

    Attributes:
        total: Its value, summed over frames.
        weight: The weight of the frames: `total / weight` is the objective per frame.
        derivative: (rows, dim), the derivative of the total with respect to the output: a NumPy
            array, or an object with `__dlpack__`, such as a PyTorch tensor.
        auxiliary: A part that is logged separately, such as a regularisation term; not in `total`.

    Raises:
        ExampleError: total, weight or auxiliary is not a number.
    """

    total: float = attrs.field(converter=_number)
    weight: float = attrs.field(converter=_number)
    derivative: Any
    auxiliary: float = attrs.field(default=0.0, converter=_number)


ObjectiveFunction = Callable[[Mapping[str, Array], TrainingExample], Mapping[str, Objective]]
"""From the outputs of the network, (rows, dim) by name, and the example, the objective at each
output. The function sees all outputs at once, because the objective at one output may follow from
another one: the posteriors of a 'chain' numerator also train the cross-entropy output. Outputs are
of NumPy, unless the function has the attribute `takes_device_arrays` with the value True: then
those of a network on a CUDA device are of CuPy."""


def takes_device_arrays(function: ObjectiveFunction) -> bool:
    """Whether an objective function takes outputs on a device, without copying them to the host."""
    return bool(getattr(function, "takes_device_arrays", False))


def prepared(objective: object, example: TrainingExample) -> TrainingExample:
    """The example with the outputs that an objective function needs.

    A function that needs more outputs than an example has gives it these by a method `prepared`.

    Raises:
        ExampleError: it is no example.
    """
    if not isinstance(example, TrainingExample):
        raise ExampleError(f"expected a TrainingExample, found {type(example).__name__}")
    prepare: Callable[[TrainingExample], TrainingExample] | None
    prepare = getattr(objective, "prepared", None)
    return example if prepare is None else prepare(example)


def objectives_at(
    function: ObjectiveFunction, outputs: Mapping[str, Array], example: TrainingExample
) -> dict[str, Objective]:
    """What an objective function gives.

    Raises:
        ExampleError: it is no mapping to `Objective`s; or the error of the function.
    """
    found: object = function(outputs, example)
    if not isinstance(found, Mapping):
        kind = type(found).__name__
        raise ExampleError(f"expected a mapping of objectives by output, found {kind}")
    for name, each in found.items():
        if not isinstance(each, Objective):
            kind = type(each).__name__
            raise ExampleError(f"output '{name}': expected an Objective, found {kind}")
    return dict(found)


ArrayFunction = Callable[[Any, Any], tuple[Any, Any]]
"""From an output and its targets, both (rows, dim), the value of the objective, summed over rows,
and its derivative by the output, (rows, dim): arrays of NumPy, or of a library that reads
DLPack."""


GivenObjective = ObjectiveFunction | str | Mapping[str, str | ArrayFunction]
"""The objectives that a caller may give; see `as_objective_function`."""


@attrs.frozen
class OutputObjectives:
    """The objective of each output by its name, or as a function of arrays.

    Attributes:
        chosen: By output: "linear" (the sum of output times target), "quadratic" (-1/2 the sum of
            squared differences), "cross-entropy" (of the softmax of the output), or a function of
            arrays. The key "*" stands for all outputs without a key of their own.
        convert: Converts NumPy arrays to the arrays that functions take: `torch.from_dlpack`,
            `cupy.asarray`. By default functions get NumPy arrays.

    Raises:
        ExampleError: a name is that of no objective.
    """

    chosen: Mapping[str, str | ArrayFunction] = attrs.field(hash=False)  # a dict has no hash
    convert: Callable[[Array], Any] | None = None

    @chosen.validator
    def _check(self, _: object, chosen: Mapping[str, object]) -> None:
        for output, objective in chosen.items():
            if not callable(objective) and objective not in NAMED:
                known = ", ".join(f"'{name}'" for name in NAMED)
                raise ExampleError(
                    f"output '{output}': expected a function or one of {known} as objective, "
                    f"found {objective!r}"
                )

    def __call__(
        self, outputs: Mapping[str, Array], example: TrainingExample
    ) -> dict[str, Objective]:
        """The objective at each output of the example.

        Raises:
            ExampleError: an output has no objective, the supervision is of another kind or shape
                than the output, or a function gives something else than a value and a derivative.
        """
        result = {}
        for io in example.outputs:
            chosen = self.chosen.get(io.name, self.chosen.get("*"))
            if chosen is None:
                raise ExampleError(f"output '{io.name}' has no objective")
            supervision = _fitting(io, outputs[io.name])
            if isinstance(chosen, str):
                result[io.name] = NAMED[chosen](outputs[io.name], supervision)
            else:
                result[io.name] = self._of_function(chosen, io.name, outputs[io.name], supervision)
        return result

    def _of_function(
        self,
        function: ArrayFunction,
        name: str,
        output: Array,
        supervision: DenseTargets | SparsePosteriors,
    ) -> Objective:
        targets = np.array(supervision.values)
        convert = self.convert or (lambda array: array)
        found = function(convert(output), convert(targets))
        try:
            value, derivative = found
            total = float(value)
        except (TypeError, ValueError) as error:
            raise ExampleError(
                f"output '{name}': expected a value and a derivative of the objective function, "
                f"found {type(found).__name__} ({error})"
            ) from error
        return Objective(total=total, weight=float(len(output)), derivative=derivative)


def as_objective_function(objective: GivenObjective | None, nnet: Nnet) -> ObjectiveFunction:
    """Returns the objective function for a caller's argument.

    Args:
        objective: An objective function; or a name for all outputs; or by output a name or a
            function of arrays (see `OutputObjectives`); or None for the objectives of the output
            nodes.
        nnet: The network.

    Raises:
        ExampleError: a name is that of no objective, or the argument is nothing of these.
    """
    of_nodes = {node.name: node.objective for node in nnet.output_nodes}
    if objective is None:
        return OutputObjectives(of_nodes)
    if isinstance(objective, str):
        return OutputObjectives({"*": objective})
    if isinstance(objective, Mapping):
        for name in objective:
            if name not in of_nodes and name != "*":
                known = ", ".join(f"'{node}'" for node in of_nodes)
                raise ExampleError(f"the network has no output '{name}'; it has {known}")
        others = {} if "*" in objective else of_nodes
        return OutputObjectives({**others, **objective})
    given: object = objective
    if not callable(given):
        found = type(given).__name__
        raise ExampleError(f"expected an objective function or names of objectives, found {found}")
    return objective


def _fitting(io: ExampleOutput, output: Array) -> DenseTargets | SparsePosteriors:
    """The supervision of an output, if it is of a kind that fits.

    Raises:
        ExampleError: it does not.
    """
    supervision = io.supervision
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
    return supervision


def _unlimited() -> AbstractContextManager[Any]:
    """Within, NumPy warns of no numbers that are too large: the Trainer says that it diverged."""
    return np.errstate(over="ignore", invalid="ignore")


def linear(output: Array, supervision: DenseTargets | SparsePosteriors) -> Objective:
    """The sum of output * supervision: the cross-entropy, if the output is a log-softmax.

    The weight is the sum of the supervision.
    """
    if isinstance(supervision, DenseTargets):
        values = supervision.values
        with _unlimited():
            total = np.vecdot(output, values).sum(dtype=np.float64)
        return Objective(
            total=float(total), weight=float(values.sum(dtype=np.float64)), derivative=values
        )
    rows, classes, weights = supervision.rows, supervision.classes, supervision.weights
    derivative = np.zeros_like(output)
    np.add.at(derivative, (rows, classes), weights)
    with _unlimited():
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
    with _unlimited():
        total = -0.5 * np.vecdot(difference, difference).sum(dtype=np.float64)
    return Objective(total=float(total), weight=float(len(output)), derivative=difference)


def cross_entropy(output: Array, supervision: DenseTargets | SparsePosteriors) -> Objective:
    """The sum of supervision * log softmax(output); the weight is the sum of the supervision."""
    targets = supervision.values
    with _unlimited():
        shifted = output - output.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        total = np.vecdot(logs, targets).sum(dtype=np.float64)
    weights = targets.sum(axis=1, keepdims=True)
    return Objective(
        total=float(total),
        weight=float(weights.sum(dtype=np.float64)),
        derivative=targets - weights * np.exp(logs),
    )


NAMED: Mapping[str, Callable[[Array, DenseTargets | SparsePosteriors], Objective]] = {
    "linear": linear,
    "quadratic": quadratic,
    "cross-entropy": cross_entropy,
}
"""The objectives that have a name."""


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
        """The objective per frame; NaN before the first minibatch."""
        return self.total / self.weight if self.weight else float("nan")

    def __str__(self) -> str:
        text = f"{self.per_frame:.6g}"
        if self.auxiliary:
            part = self.auxiliary / self.weight if self.weight else float("nan")
            text += f" + {part:.6g} = {self.per_frame + part:.6g}"
        return f"{text} over {self.weight:.6g} frames in {self.minibatches} minibatches"
