"""Callbacks of a training run, called between minibatches: schedules and checkpoints.

Schedules depend only on the number of minibatches so far, so they go on correctly from a
checkpoint.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Mapping
from typing import Self

import attrs
import numpy as np
from nnet3_runtime_cuda import TrainingError

from nnet3_training import fields
from nnet3_training.objectives import Objective
from nnet3_training.trainer import Callback, Trainer


@attrs.frozen(kw_only=True)
class DropoutFunction:
    """The proportion of values to drop, as a piecewise linear function of the data seen.

    Attributes:
        pattern: The names of the components; "*" stands for any characters.
        fractions: Fractions of all data, from 0 to 1 in rising order.
        proportions: The proportion at each fraction. If a fraction occurs twice, the second
            proportion holds after it.
    """

    pattern: str
    fractions: tuple[float, ...]
    proportions: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads "0,0@0.2,0.5@0.5,0" or "lstm*=0,0.3,0", as Kaldi's --trainer.dropout-schedule.

        The first and the last proportion hold at the start and the end. A proportion between them
        names its fraction of the data after "@"; without one it holds at half of the data.

        Raises:
            TrainingError: the text describes no such function.
        """
        before, equals, function = text.partition("=")
        pattern, points = (before, function.split(",")) if equals else ("*", text.split(","))
        if len(points) < 2:
            raise _no_schedule(text, "expected proportions for the start and for the end")
        fractions, proportions = [], []
        for number, point in enumerate(points):
            is_inner = 0 < number < len(points) - 1
            proportion, at, fraction = point.partition("@")
            if at and not is_inner:
                raise _no_schedule(text, f"the first and the last have no '@' (found '{point}')")
            proportions.append(_share(proportion, text))
            if is_inner:
                fractions.append(_share(fraction, text) if at else 0.5)
            else:
                fractions.append(1.0 if number else 0.0)
        if fractions != sorted(fractions):
            raise _no_schedule(text, "fractions of the data must rise")
        return cls(pattern=pattern, fractions=tuple(fractions), proportions=tuple(proportions))

    def __call__(self, fraction: float) -> float:
        """The proportion after a fraction of the data."""
        return float(np.interp(fraction, self.fractions, self.proportions))


def _share(word: str, text: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise _no_schedule(text, f"expected a number from 0 to 1, found '{word}'")
    return value


def _no_schedule(text: str, reason: str) -> TrainingError:
    return TrainingError(f"'{text}' is no schedule of dropout: {reason}")


class DropoutSchedule(Callback):
    """Changes the proportion of dropout during training.

    Attributes:
        functions: One function for each pattern; if several patterns match a name, the last one
            holds.
    """

    def __init__(self, text: str, num_minibatches: int, *, num_changes: int = 50) -> None:
        """Reads a schedule.

        Args:
            text: One function or several with patterns, separated by spaces; see
                `DropoutFunction.parse`: "*=0,0.2@0.25,0 lstm*=0,0.3,0".
            num_minibatches: Number of minibatches of the whole run.
            num_changes: How often the proportions change; each change compiles programs anew.

        Raises:
            TrainingError: the schedule, or a number, is not valid.
        """
        if not (isinstance(num_minibatches, int) and isinstance(num_changes, int)):
            raise TrainingError("num_minibatches and num_changes must be integers")
        if min(num_minibatches, num_changes) < 1:
            raise TrainingError("num_minibatches and num_changes must be at least 1")
        if not isinstance(text, str):
            raise TrainingError(f"expected the text of a schedule, found {type(text).__name__}")
        self.functions = tuple(map(DropoutFunction.parse, text.split()))
        if not self.functions:
            raise _no_schedule(text, "it is empty")
        self._num_minibatches = num_minibatches
        self._num_changes = min(num_changes, num_minibatches)
        self._step: int | None = None
        self._trainer: weakref.ref[Trainer] | None = None

    def __repr__(self) -> str:
        """The number of functions, and of minibatches."""
        functions = len(self.functions)
        return f"<DropoutSchedule: {functions} functions, {self._num_minibatches} minibatches>"

    def before_minibatch(self, trainer: Trainer) -> None:
        """Sets the proportions, if a change is due."""
        seen = min(trainer.num_minibatches, self._num_minibatches)
        step = seen * self._num_changes // self._num_minibatches
        is_same = self._trainer is not None and self._trainer() is trainer
        if is_same and step == self._step:
            return
        for function in self.functions:
            trainer.set_dropout(function(step / self._num_changes), function.pattern)
        self._step, self._trainer = step, weakref.ref(trainer)


@attrs.frozen(kw_only=True)
class LearningRateSchedule(Callback):
    """Lets the learning rate fall by equal factors, as Kaldi's recipes do.

    Attributes:
        initial: The rate of the first minibatch.
        final: The rate after the last minibatch.
        num_minibatches: Number of minibatches of the whole run.
    """

    initial: float = fields.number(TrainingError, above=0.0, below=math.inf)
    final: float = fields.number(TrainingError, above=0.0, below=math.inf)
    num_minibatches: int = fields.integer(TrainingError, least=1)

    def rate(self, minibatch: int) -> float:
        """The rate of the minibatch of that number, from 0."""
        seen = min(minibatch / self.num_minibatches, 1.0)
        return float(self.initial * (self.final / self.initial) ** seen)

    def before_minibatch(self, trainer: Trainer) -> None:
        """Sets the rate."""
        trainer.set_learning_rate(self.rate(trainer.num_minibatches))


@attrs.frozen
class Checkpoints(Callback):
    """Writes a checkpoint every `period` minibatches.

    Attributes:
        path: The file.
        period: Number of minibatches from one checkpoint to the next.
    """

    path: str | os.PathLike[str]
    period: int = attrs.field(
        default=100, validator=fields.is_integer(TrainingError, 1), kw_only=True
    )

    def after_minibatch(self, trainer: Trainer, objectives: Mapping[str, Objective]) -> None:
        """Writes a checkpoint, if one is due."""
        if trainer.num_minibatches % self.period == 0:
            trainer.save(self.path)
