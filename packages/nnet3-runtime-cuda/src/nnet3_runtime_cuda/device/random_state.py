"""The states of the random generators of training, as a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from nnet3_descriptors import SerializationError

from nnet3_runtime_cuda.errors import RunError

DRAWS = 64
"""Numbers to draw at a time for decisions: a call of a generator takes as long as ten numbers."""

_STATE_BITS = 128
_GENERATOR = "PCG64"


def _below(bits: int) -> Any:
    """A field for an unsigned integer of `bits` bits."""

    def check(_: object, field: attrs.Attribute[Any], value: int) -> None:
        if not 0 <= value < 1 << bits:
            raise SerializationError(f"{field.name} must have {bits} bits (got {value})")

    return attrs.field(validator=check)


@attrs.frozen(kw_only=True)
class GeneratorState:
    """A generator of NumPy's `PCG64`; the fields are those of its `state`."""

    state: int = _below(_STATE_BITS)
    inc: int = _below(_STATE_BITS)
    has_uint32: int = _below(1)
    uinteger: int = _below(32)

    @classmethod
    def of(cls, rng: np.random.Generator) -> GeneratorState:
        """The state of a generator."""
        found = rng.bit_generator.state
        assert found["bit_generator"] == _GENERATOR
        rest = {name: found[name] for name in ("has_uint32", "uinteger")}
        return cls(**found["state"], **rest)

    def give_to(self, rng: np.random.Generator) -> None:
        """Sets a generator to this state."""
        rng.bit_generator.state = {
            "bit_generator": _GENERATOR,
            "state": {"state": self.state, "inc": self.inc},
            "has_uint32": self.has_uint32,
            "uinteger": self.uinteger,
        }


@attrs.frozen(kw_only=True)
class RandomState:
    """The states of all random generators.

    Attributes:
        masks: The generator of masks.
        decisions: The generator of decisions.
        drawn: Numbers that it drew and that no decision has used yet.
    """

    masks: GeneratorState
    decisions: GeneratorState
    drawn: tuple[float, ...]


class Generators:
    """The random generators of a network, made when the first number is drawn.

    Inference draws none, and importing NumPy's generators takes a while.
    """

    def __init__(self, seed: int) -> None:
        """Begins.

        Args:
            seed: Of all generators.

        Raises:
            RunError: the seed is negative, or no integer.
        """
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise RunError(f"the seed must be an integer >= 0 (got {seed!r})")
        self._seed = int(seed)

    @cached_property
    def masks(self) -> np.random.Generator:
        """The generator of masks."""
        return np.random.default_rng(self._seed)

    @cached_property
    def decisions(self) -> Draws:
        """The decisions on which minibatches to record statistics."""
        return Draws(self.masks.spawn(1)[0])

    @property
    def state(self) -> RandomState:
        """The state of the generators; set it to draw the same numbers."""
        return RandomState(
            masks=GeneratorState.of(self.masks),
            drawn=self.decisions.left,
            decisions=GeneratorState.of(self.decisions.rng),
        )

    @state.setter
    def state(self, state: RandomState) -> None:
        state.masks.give_to(self.masks)
        state.decisions.give_to(self.decisions.rng)
        self.decisions.left = state.drawn

    def keep(self) -> Callable[[], object]:
        """Keeps the state; the call that it returns sets it back."""
        generators = self.masks.bit_generator, self.decisions.rng.bit_generator
        states, left = [each.state for each in generators], self.decisions.left

        def restore() -> None:
            for generator, state in zip(generators, states, strict=True):
                generator.state = state
            self.decisions.left = left

        return restore


class Draws:
    """Random numbers in [0, 1) for decisions, from a generator that nothing else uses."""

    def __init__(self, rng: np.random.Generator) -> None:
        """Draws nothing yet."""
        self.rng = rng
        self._left: Iterator[float] = iter(())

    def __iter__(self) -> Iterator[float]:
        return self

    def __next__(self) -> float:
        for number in self._left:
            return number
        self._left = iter(self.rng.random(DRAWS).tolist())
        return next(self._left)

    @property
    def left(self) -> tuple[float, ...]:
        """The numbers that were drawn and not used."""
        numbers = tuple(self._left)
        self._left = iter(numbers)
        return numbers

    @left.setter
    def left(self, numbers: Sequence[float]) -> None:
        self._left = iter(numbers)
