"""The options of fine-tuning; the module imports nothing that trains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import attrs

from nnet3_training.errors import ExampleError


def _patterns(values: Sequence[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)


def _at_least_one(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, int) or value < 1:
        raise ExampleError(f"{field.name} must be an integer >= 1 (got {value!r})")


def _seed(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, int) or value < 0:
        raise ExampleError(f"{field.name} must be an integer >= 0 (got {value!r})")


def _rate(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is None and field.default is None:
        return
    if not isinstance(value, Real) or not 0.0 <= float(value) < math.inf:
        raise ExampleError(f"{field.name} must be at least 0, and finite (got {value!r})")


@attrs.frozen(kw_only=True)
class FineTuning:
    """The options of training a trained model further.

    Attributes:
        learning_rate: The rate of the first step; components multiply it by their factors.
        final_learning_rate: The rate of the last step; in between the rate falls by equal factors.
            None for a constant rate.
        epochs: The number of times that each example is used.
        minibatch_size: Examples in a minibatch.
        frozen: Patterns of names of components that do not change; `*` stands for any characters.
        momentum: See `TrainerOptions`.
        max_param_change: See `TrainerOptions`.
        seed: The seed for the order of examples, which is new in each epoch.

    Raises:
        ExampleError: a number is out of range.
    """

    learning_rate: float = attrs.field(default=1e-5, validator=_rate)
    final_learning_rate: float | None = attrs.field(default=None, validator=_rate)
    epochs: int = attrs.field(default=2, validator=_at_least_one)
    minibatch_size: int = attrs.field(default=64, validator=_at_least_one)
    frozen: tuple[str, ...] = attrs.field(default=(), converter=_patterns)
    momentum: float = 0.0
    max_param_change: float = 2.0
    seed: int = attrs.field(default=0, validator=_seed)
