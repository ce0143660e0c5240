"""Log lines about objectives, during and after training, in the form that Kaldi's scripts read."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from nnet3_training import ObjectiveSum, recipes

from nnet3_tools import cli

if TYPE_CHECKING:
    from nnet3_descriptors import Nnet
    from nnet3_training import Evaluator, Objective, Trainer


def value(total: ObjectiveSum) -> str:
    """The objective per frame, with its auxiliary part if it has one, and the number of frames."""
    main, frames = total.per_frame, f"{total.weight:.6g} frames."
    if not total.auxiliary:
        return f"is {main:.6g} over {frames}"
    part = total.auxiliary / total.weight
    return f"is {main:.6g} + {part:.6g} = {main + part:.6g} over {frames}"


def say_log_probabilities(evaluator: Evaluator, *, place: str = "") -> None:
    """Logs the objective of a chain model at each output, over all examples; see `cli.log`."""
    for name, total in evaluator.objectives.items():
        figures = value(total).replace(" over ", " per frame, over ")
        cli.log(f"Overall log-probability for '{name}' {figures}", place)


class ObjectiveLog:
    """Logs the objective of each output every few minibatches.

    As in Kaldi, the line for a range of minibatches appears when the output occurs in a later
    range, so the last range has no line.

    Args:
        interval: Number of minibatches in a range.
    """

    def __init__(self, interval: int) -> None:
        self._interval = interval
        # By output, the number of the range and the sum of its objectives so far.
        self._phases: dict[str, tuple[int, ObjectiveSum]] = {}

    def add(self, minibatch: int, objectives: Mapping[str, Objective]) -> None:
        """Adds the objectives of a minibatch, counted from 0."""
        number = minibatch // self._interval
        for name, objective in objectives.items():
            before, total = self._phases.setdefault(name, (0, ObjectiveSum()))
            if number != before:
                count = total.minibatches
                minibatches = f"{before * self._interval}-{number * self._interval - 1}"
                which = f"' for minibatches {minibatches}"
                if count != self._interval:
                    which = f" using {count} minibatches in minibatch range {minibatches}"
                cli.log(f"Average objective function for '{name}{which} {value(total)}")
                total = ObjectiveSum()
                self._phases[name] = number, total
            total.add(objective)


def say_totals(totals: Mapping[str, ObjectiveSum]) -> None:
    """Logs the objective of each output over all minibatches."""
    for name, total in totals.items():
        cli.log(f"Overall average objective function for '{name}' " + value(total))
        cli.log(
            f"[this line is to be parsed by a script:] log-prob-per-frame={total.per_frame:.6g}"
        )


def say_limits(trainer: Trainer) -> None:
    """Logs how often the size of a change of the parameters was limited."""
    count = max(trainer.num_updates, 1)
    names = [name for name in trainer.nnet_as_given.component_names if trainer.num_limited[name]]
    for name in names:
        share = 100.0 * trainer.num_limited[name] / count
        cli.log(f"For {name}, per-component max-change was enforced {share:.6g} % of the time.")
    if trainer.num_globally_limited:
        share = 100.0 * trainer.num_globally_limited / count
        cli.log(f"The global max-change was enforced {share:.6g} % of the time.")


def say_change(trainer: Trainer) -> None:
    """Logs how the last change was limited, if it was."""
    change, nnet = trainer.last_change, trainer.nnet_as_given
    if change is None or not (change.limited or change.global_factor < 1.0):
        return
    parts = []
    if change.limited:
        number, factor = min(change.limited.items(), key=operator.itemgetter(1))
        bound = getattr(nnet.components[number], "max_change", 0.0)
        parts.append(
            f"Per-component max-change active on {len(change.limited)} / {len(change.factors)} "
            f"Updatable Components. (Smallest factor={factor:.6g} on "
            f"{nnet.component_names[number]} with max-change={bound:.6g}). "
        )
    if change.global_factor < 1.0:
        parts.append(
            f"Global max-change factor was {change.global_factor:.6g} with "
            f"max-change={trainer.options.max_param_change:.6g}."
        )
    cli.log("".join(parts))


def say_compiling(seconds: Mapping[str, float]) -> None:
    """Logs the time of each stage of compiling."""
    stages = ", ".join(f"{time:.3g} {stage}" for stage, time in seconds.items())
    total = sum(seconds.values())
    cli.log(f"{total:.3g} seconds taken in nnet3 compilation total (breakdown: {stages})")


def say_combination(count: int, objective: float) -> None:
    """Logs the objective of the average of `count` models."""
    if count == 1:
        cli.log(f"objective function using the last model is {objective:.6g}")
    else:
        cli.log(f"Combining last {count} models, objective function is {objective:.6g}")


def say_combined(combined: recipes.Combined, say: Callable[[Evaluator], None]) -> None:
    """Logs the best number of models, and the improvement by their average.

    Args:
        combined: The result.
        say: Logs the evaluation during which the statistics of batch-norm were gathered, if any.
    """
    first, best = combined.objectives[1], combined.objectives[combined.num_models]
    cli.log(
        f"Combining {combined.num_models} nnets, objective function changed from {first:.6g} to "
        f"{best:.6g}"
    )
    if combined.recomputed is not None:
        cli.log("Recomputing stats on nnet (affects batch-norm)")
        say(combined.recomputed)
        cli.log("Done recomputing stats.")


def say_evaluation(
    evaluator: Evaluator, nnet: Nnet, *, place: str = "", per_column: bool = False
) -> None:
    """Prints the objective and the accuracy at each output, in the form that Kaldi's scripts read.

    Args:
        evaluator: The evaluation.
        nnet: The network.
        place: What stands before the lines in parentheses; see `cli.log`.
        per_column: Whether to print the accuracy of each column, too; -1 for those without weight.
    """
    kinds = {node.name: node.objective for node in nnet.output_nodes}
    for name, total in evaluator.objectives.items():
        what = "log-likelihood" if kinds.get(name) == "linear" else "objective"
        cli.log(
            f"Overall {what} for '{name}' is {total.per_frame:.6g} per frame, over "
            f"{total.weight:.6g} frames.",
            place,
        )
    for name, found in evaluator.accuracies.items():
        weight = f"{found.weight.sum():.6g} frames."
        cli.log(
            f"Overall accuracy for '{name}' is {found.per_frame:.6g} per frame, over {weight}",
            place,
        )
        if per_column:
            known = found.weight != 0.0
            shares = np.full(len(known), -1.0)
            shares[known] = found.right[known] / found.weight[known]
            values = "".join(f"{share:.6g} " for share in shares)
            cli.log(f"Overall per-dim accuracy vector for '{name}' is  [ {values}]", place)


def by_component(nnet: Nnet, values: Iterable[float]) -> str:
    """One number for each component with parameters, as text: the component's name, the number."""
    names = [name for name, c in zip(nnet.component_names, nnet.components, strict=True)
             if c.parameter_arrays()]  # fmt: skip
    pairs = "".join(f"{name}:{value:.6g} " for name, value in zip(names, values, strict=True))
    return f"[ {pairs}]"


def parameter_counts(nnet: Nnet) -> list[int]:
    """The number of parameters of each component that has some."""
    counts = (sum(a.size for a in c.parameter_arrays().values()) for c in nnet.components)
    return [count for count in counts if count]


def dot_products(
    nnet: Nnet, one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The dot product of two vectors of parameters, for each component with parameters.

    Args:
        nnet: The network.
        one: (num_parameters,), in the order of `vectorize`.
        other: The same.
    """
    starts = np.cumsum([0, *parameter_counts(nnet)])
    ranges = itertools.pairwise(starts.tolist())
    return np.array([np.vdot(one[a:b], other[a:b]) for a, b in ranges])
