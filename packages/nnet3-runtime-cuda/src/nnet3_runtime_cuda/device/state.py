"""The state of training on a device, beside parameters: as a value that can be stored, and kept.

A run that continues from it computes the same bits as a run that did not stop. So sums are stored
unchanged, in double precision, where a `Nnet` has averages. A `Nnet` has exact counts, so these are
not stored. Signals wait while the state changes.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from types import FrameType
from typing import Any, Self

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Nnet, SerializationError
from nnet3_descriptors.components import Component, CompositeComponent, NormalizeComponent

from nnet3_runtime_cuda.errors import RunError
from nnet3_runtime_cuda.kernels import Kernel
from nnet3_runtime_cuda.machine import KeptArrays, Machine, Restore, all_of, keep_attributes
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.gradients import EstimateState

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
        self._drawn: list[float] = []  # numbers that no decision has used yet, the next one last

    @cached_property
    def masks(self) -> np.random.Generator:
        """The generator of masks."""
        return np.random.default_rng(self._seed)

    @cached_property
    def decisions(self) -> np.random.Generator:
        """The generator of decisions on which minibatches to record statistics."""
        return self.masks.spawn(1)[0]

    def draw(self) -> float:
        """A random number in [0, 1) for a decision."""
        if not self._drawn:
            self._drawn = self.decisions.random(DRAWS).tolist()[::-1]
        return self._drawn.pop()

    @property
    def state(self) -> RandomState:
        """The state of the generators; set it to draw the same numbers."""
        return RandomState(
            masks=GeneratorState.of(self.masks),
            drawn=tuple(self._drawn[::-1]),
            decisions=GeneratorState.of(self.decisions),
        )

    @state.setter
    def state(self, state: RandomState) -> None:
        state.masks.give_to(self.masks)
        state.decisions.give_to(self.decisions)
        self._drawn = [*state.drawn[::-1]]

    def keep(self) -> Callable[[], object]:
        """Keeps the state; the call that it returns sets it back."""
        return partial(setattr, self, "state", self.state)


@attrs.frozen(kw_only=True, eq=False)
class KernelState:
    """The state of a component.

    Attributes:
        component: Number of the component.
        sums: Its sums, which are on the device.
        estimates: The estimates of its natural gradient.
    """

    component: int
    sums: tuple[npt.NDArray[np.float64], ...]
    estimates: tuple[EstimateState, ...]


@attrs.frozen(kw_only=True, eq=False)
class TrainingState:
    """The state of training on a device, beside parameters.

    Attributes:
        random: The states of random generators.
        kernels: The states of components that have been used.
        exact_zeros: The numbers of components that give exact zeros, as their biases were at the
            start; see `with_exact_zeros`. None if a file of an earlier version does not say it.
    """

    random: RandomState
    kernels: tuple[KernelState, ...]
    exact_zeros: tuple[int, ...] | None = None


def state_of(kernel: Kernel, component: int, machine: Machine) -> KernelState:
    """The state of the kernel of a component."""
    machine.pull(kernel.store.states)
    return KernelState(
        component=component,
        sums=tuple(array.copy() for array in kernel.store.states),
        estimates=tuple(machine.estimate_state(each) for each in kernel.store.estimates),
    )


class Savepoint:
    """Keeps the state of training, and arrays beside it, so that work can be undone.

    It costs copies of sums, and on a device of the estimates of the natural gradient.
    """

    def __init__(self, machine: Machine, kernels: Mapping[int, Kernel], random: Generators) -> None:
        """Keeps nothing yet; `kernels` may grow."""
        self._machine, self._kernels, self._random = machine, kernels, random
        self._sums, self._others = KeptArrays(), KeptArrays()

    def take(self, others: Sequence[Array] = ()) -> Restore:
        """Keeps the present state, in place of the one kept before.

        Args:
            others: Further arrays of the machine: the same in each call, or none.

        Returns:
            A call that goes back to it; a second call does no harm.
        """
        kernels = [each for kernel in self._kernels.values() for each in _with_parts(kernel)]
        sums = [array for kernel in self._kernels.values() for array in kernel.store.states]
        restores = [
            self._random.keep(),
            keep_attributes(kernels),
            self._machine.keep_estimates(),
            self._sums.keep(self._machine, sums),
        ]
        if others:
            restores.append(self._others.keep(self._machine, others))
        return all_of(restores)


def _with_parts(kernel: Kernel) -> Iterator[Kernel]:
    yield kernel
    for part in kernel.parts:
        yield from _with_parts(part)


def resume(kernel: Kernel, state: KernelState, machine: Machine) -> None:
    """Sets the state of a kernel that no program uses yet.

    Raises:
        SerializationError: it is the state of another kernel.
    """
    estimates, arrays = kernel.store.estimates, kernel.store.states
    place = f"component {state.component}, {kernel.component.type}"
    for what, found, expected in (
        ("sums", len(state.sums), len(arrays)),
        ("estimates", len(state.estimates), len(estimates)),
    ):
        if found != expected:
            raise SerializationError(f"{place}: expected {expected} {what}, found {found}")
    for array, values in zip(arrays, state.sums, strict=True):
        if values.shape != array.shape:
            raise SerializationError(
                f"{place}: expected a sum of the shape {array.shape}, found {values.shape}"
            )
        array[...] = values
    machine.push(arrays)
    for estimate, each in zip(estimates, state.estimates, strict=True):
        machine.resume_estimate(estimate, each)


_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
_SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
"""The signals whose handlers programs let raise exceptions, such as KeyboardInterrupt."""


class PostponedSignals:
    """A context in which no handler of a signal runs: Ctrl-C takes effect at its end.

    It changes nothing outside of the main thread, because handlers run there only, and for signals
    without a handler in Python.
    """

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        found = ((number, signal.getsignal(number)) for number in _SIGNALS if is_main)
        self._usual: dict[int, Any] = {
            number: handler for number, handler in found if callable(handler)
        }
        self._waiting: list[int] = []
        self._postpone()
        return self

    def __exit__(self, *_: object) -> None:
        self._let_through([*self._usual])

    @contextmanager
    def heard(self) -> Iterator[None]:
        """A context within, in which handlers run: for code of a caller, which may take long."""
        try:
            self._let_through([*self._usual])
            yield
        finally:
            self._postpone()

    def _postpone(self) -> None:
        try:
            for number in [*self._usual]:
                if (now := signal.getsignal(number)) is not None:
                    self._usual[number] = now  # code of a caller may have set it
                signal.signal(number, self._note)
        except BaseException:  # another handler raised it meanwhile
            self._let_through([*self._usual])
            raise

    def _note(self, number: int, _: FrameType | None) -> None:
        if number not in self._waiting:
            self._waiting.append(number)

    def _let_through(self, numbers: list[int]) -> None:
        """Sets handlers back, the last ones first, and makes up for the signals meanwhile."""
        try:
            if numbers:
                number = numbers.pop()
                signal.signal(number, self._usual[number])
            elif self._waiting:
                signal.raise_signal(self._waiting.pop())
        finally:  # a handler may raise an exception
            if numbers or self._waiting:
                self._let_through(numbers)


def with_exact_zeros(nnet: Nnet) -> frozenset[int]:
    """Numbers of the components without a bias, or with zeros in it, if the network normalizes.

    A NormalizeComponent scales each row to the same size, whatever its size was. Where a product of
    zeros is a rounding error of neighbouring frames instead of zero, as with minimal filtering,
    that error becomes as large as any other output. A bias hides such an error, unless it is zero
    too.
    """
    if not any(map(_normalizes, nnet.components)):
        return frozenset()
    return frozenset(
        number for number, component in enumerate(nnet.components) if not _has_bias(component)
    )


def _normalizes(component: Component) -> bool:
    """Whether a component or a part of it is a NormalizeComponent."""
    if isinstance(component, CompositeComponent):
        return any(map(_normalizes, component.components))
    return isinstance(component, NormalizeComponent)


def _has_bias(component: Component) -> bool:
    """Whether a component adds to each column of its output a number that is not zero."""
    bias = component.parameter_arrays().get("bias_params")
    return bias is not None and bias.size > 0 and bool(bias.all())
