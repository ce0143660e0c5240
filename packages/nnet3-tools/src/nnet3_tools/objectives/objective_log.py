"""Log lines about objectives, during and after training, in the form that Kaldi's scripts read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs
from nnet3_training import ObjectiveSum

if TYPE_CHECKING:
    from nnet3_training import Objective, Trainer
    from nnet3_training.recipes import Combined

Say = Callable[[str], None]


def value(total: ObjectiveSum, sign: str = "is") -> str:
    """The objective per frame, with its auxiliary part if it has one, and the number of frames."""
    main, frames = total.per_frame, f"{total.weight:.6g} frames."
    if not total.auxiliary:
        return f"{sign} {main:.6g} over {frames}"
    part = total.auxiliary / total.weight
    return f"{sign} {main:.6g} + {part:.6g} = {main + part:.6g} over {frames}"


def log_probability(name: str, total: ObjectiveSum) -> str:
    """The line about the objective of a chain model at an output, summed over all examples."""
    figures = value(total).replace(" over ", " per frame, over ")
    return f"Overall log-probability for '{name}' {figures}"


@attrs.define
class _Phase:
    """The objective of an output over a range of minibatches.

    Attributes:
        number: Number of the range.
        total: Sum of the objectives.
    """

    number: int = 0
    total: ObjectiveSum = attrs.field(factory=ObjectiveSum)


@attrs.define
class ObjectiveLog:
    """Logs the objective of each output every few minibatches.

    As in Kaldi, the line for a range of minibatches appears when the output occurs in a later
    range, so the last range has no line.

    Attributes:
        interval: Number of minibatches in a range.
        say: Logs a line.
    """

    interval: int
    say: Say
    _phases: dict[str, _Phase] = attrs.field(factory=dict)

    def add(self, minibatch: int, objectives: Mapping[str, Objective]) -> None:
        """Adds the objectives of a minibatch, counted from 0."""
        number = minibatch // self.interval
        for name, objective in objectives.items():
            phase = self._phases.setdefault(name, _Phase())
            if number != phase.number:
                self._say_phase(name, phase, number)
                phase = self._phases[name] = _Phase(number)
            phase.total.add(objective)

    def _say_phase(self, name: str, phase: _Phase, later: int) -> None:
        minibatches = f"{phase.number * self.interval}-{later * self.interval - 1}"
        count = phase.total.minibatches
        if count == self.interval:
            which = f"' for minibatches {minibatches}"
        else:
            which = f" using {count} minibatches in minibatch range {minibatches}"
        self.say(f"Average objective function for '{name}{which} {value(phase.total)}")


def say_totals(totals: Mapping[str, ObjectiveSum], say: Say) -> None:
    """Logs the objective of each output over all minibatches."""
    for name, total in totals.items():
        say(f"Overall average objective function for '{name}' " + value(total))
        say(f"[this line is to be parsed by a script:] log-prob-per-frame={total.per_frame:.6g}")


def say_limits(trainer: Trainer, say: Say) -> None:
    """Logs how often the size of a change of the parameters was limited."""
    count = max(trainer.num_updates, 1)
    names = [name for name in trainer.nnet_as_given.component_names if trainer.num_limited[name]]
    for name in names:
        share = 100.0 * trainer.num_limited[name] / count
        say(f"For {name}, per-component max-change was enforced {share:.6g} % of the time.")
    if trainer.num_globally_limited:
        share = 100.0 * trainer.num_globally_limited / count
        say(f"The global max-change was enforced {share:.6g} % of the time.")


def say_change(trainer: Trainer, say: Say) -> None:
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
    say("".join(parts))


def say_compiling(seconds: Mapping[str, float], say: Say) -> None:
    """Logs the time of each stage of compiling."""
    stages = ", ".join(f"{time:.3g} {stage}" for stage, time in seconds.items())
    total = sum(seconds.values())
    say(f"{total:.3g} seconds taken in nnet3 compilation total (breakdown: {stages})")


def say_combination(count: int, objective: float, say: Say) -> None:
    """Logs the objective of the average of `count` models."""
    if count == 1:
        say(f"objective function using the last model is {objective:.6g}")
    else:
        say(f"Combining last {count} models, objective function is {objective:.6g}")


def say_combined(combined: Combined, say: Say) -> None:
    """Logs the best number of models, and the improvement by their average."""
    first, best = combined.objectives[1], combined.objectives[combined.num_models]
    say(
        f"Combining {combined.num_models} nnets, objective function changed from {first:.6g} to "
        f"{best:.6g}"
    )
