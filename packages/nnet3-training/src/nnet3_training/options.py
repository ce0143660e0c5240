"""The options of training."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import attrs
import numpy as np
from nnet3_compiler import CompilerOptions
from nnet3_optimizer import OptimizeOptions
from nnet3_runtime_cuda import TrainingError

from nnet3_training.latest_computers import MOST_COMPUTERS

_LARGEST = float(np.finfo(np.float32).max)
"""Steps are computed in single precision, where larger numbers are infinite."""


def _number(default: float | None, *, above: float | None = None, most: float | None = None) -> Any:
    """A field for a number of at least 0; `above` is a bound that it must not reach."""
    if above is not None:
        expected = f"at least 0.0 and below {above}"
    elif most is not None:
        expected = f"0.0 to {most}"
    else:
        expected = "at least 0.0, and finite in single precision"

    def check(_: object, field: attrs.Attribute[Any], value: float | None) -> None:
        if value is None and default is None:
            return
        inside = (
            isinstance(value, int | float | np.number)
            and 0.0 <= value <= (_LARGEST if most is None else most)
            and (above is None or value < above)
        )
        if not inside:
            raise TrainingError(f"{field.name} must be {expected} (got {value!r})")

    return attrs.field(default=default, validator=check)


def _integer(default: int, *, least: int) -> Any:
    """A field for an integer."""

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, Integral) or int(value) < least:
            raise TrainingError(f"{field.name} must be an integer >= {least} (got {value!r})")

    def convert(value: object) -> object:
        return int(value) if isinstance(value, Integral) else value  # NumPy's integers, too

    return attrs.field(default=default, validator=check, converter=convert)


def _switch(default: bool) -> Any:
    """A field for True or False; the word "no" does not count as True."""

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, bool | np.bool_):
            raise TrainingError(f"{field.name} must be True or False (got {value!r})")

    return attrs.field(default=default, validator=check)


@attrs.frozen(kw_only=True)
class TrainerOptions:
    """The options of training; names and defaults are those of Kaldi's nnet3-train.

    Learning rates, max-change, l2 and orthonormal constraint of single components are fields of the
    components.

    Attributes:
        learning_rate: If given, replaces the rates of all components; each is multiplied by the
            component's learning_rate_factor.
        momentum: The factor of the last change in the next one; the trainer multiplies changes by 1
            - momentum, so that learning rates keep their effect in the long run.
        max_param_change: Bound of the Euclidean norm of one change of all parameters; 0 for none.
        l2_regularize_factor: Multiplies the l2 of components.
        batchnorm_stats_scale: The factor of the statistics of batch-norm at each step, so that
            statistics of old parameters fade.
        natural_gradient: Whether components use the natural gradient, if their type can.
        store_component_stats: Whether components record averages of activations and derivatives,
            which self-repair uses.
        zero_component_stats: Whether these averages begin at zero.
        orthonormal_period: Number of minibatches from one step towards a component's orthonormal
            constraint to the next (Kaldi: at random, as often on average).
        print_interval: Number of minibatches from one log line of the objective to the next.
        backstitch_training_scale: The length of a step back before a longer one ahead, both on the
            same minibatch (Y. Wang et al., "Backstitch", Interspeech 2017); 0 for none. Not
            together with momentum.
        backstitch_training_interval: Number of minibatches from one such step to the next.
        backstitch_phase: The first minibatch with such a step, from 0 (Kaldi: at random).
        seed: The seed for dropout, and for the choice of minibatches whose statistics are recorded.
        max_computations: Number of minibatch shapes whose programs are kept, each with its own
            memory. The least recently used program is dropped first.
        compiler_options: The options of the compiler.
        optimize_options: The options of the optimizer.

    Raises:
        TrainingError: a number is out of range, a switch is neither True nor False, or there are
            both backstitch and momentum.
    """

    learning_rate: float | None = _number(None)
    momentum: float = _number(0.0, above=1.0)
    max_param_change: float = _number(2.0)
    l2_regularize_factor: float = _number(1.0)
    batchnorm_stats_scale: float = _number(0.8, most=1.0)
    natural_gradient: bool = _switch(True)
    store_component_stats: bool = _switch(True)
    zero_component_stats: bool = _switch(True)
    orthonormal_period: int = _integer(4, least=1)
    print_interval: int = _integer(100, least=1)
    backstitch_training_scale: float = _number(0.0)
    backstitch_training_interval: int = _integer(1, least=1)
    backstitch_phase: int = _integer(0, least=0)
    seed: int = _integer(0, least=0)
    max_computations: int = _integer(MOST_COMPUTERS, least=1)
    compiler_options: CompilerOptions = attrs.field(factory=CompilerOptions)
    optimize_options: OptimizeOptions = attrs.field(factory=OptimizeOptions)

    def __attrs_post_init__(self) -> None:
        if self.backstitch_training_scale and self.momentum:
            raise TrainingError("backstitch cannot be combined with momentum")
