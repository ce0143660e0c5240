"""A network on a device: its parameters and statistics there, and the machine that computes."""

from __future__ import annotations

import copy
import itertools
import math
import operator
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from nnet3_descriptors import Nnet, SerializationError
from nnet3_descriptors.components import (
    BatchNormComponent,
    Component,
    CompositeComponent,
    UpdatableComponent,
)
from nnet3_descriptors.files import maps_of

from nnet3_runtime_cuda.cpu.machine import CpuMachine
from nnet3_runtime_cuda.cpu.products import check_switches
from nnet3_runtime_cuda.cpu.threads import blas_threads
from nnet3_runtime_cuda.device.state import (
    Generators,
    PostponedSignals,
    RandomState,
    Savepoint,
    TrainingState,
    resume,
    state_of,
    with_exact_zeros,
)
from nnet3_runtime_cuda.errors import DeviceError, RunError, TrainingError, check_number_of_threads
from nnet3_runtime_cuda.kernels import ComponentStore, Kernel, kernel_class
from nnet3_runtime_cuda.kernels.normalize import BatchNormKernel
from nnet3_runtime_cuda.machine import Machine
from nnet3_runtime_cuda.operations import Array, Tape

if TYPE_CHECKING:
    from nnet3_runtime_cuda.cuda.platform import Platform

STEP_BLOCK = 1 << 18
"""Number of parameters that are changed at a time; see `recorder.BLOCK_ELEMENTS`."""

MOST_THREADS_UNASKED = 4
"""The most threads by default: more threads would wait for the interpreter."""


def machine_for(
    device: str | Platform, precision: str = "fp32", threads: int | None = None
) -> Machine:
    """The machine that serves a device.

    Args:
        device: "cpu", "cuda" (the first one), "cuda:<number>", or a platform that is open.
        precision: The rounding of the factors of matrix products: "fp32" (none), "bf16", or on a
            CUDA device "tf32", or "bf16x9" or "fp32x3" (split, not rounded).
        threads: The number of threads that share the work of a program, on the processor, at most
            256; None for as many as the BLAS library uses, but at most 4.

    Raises:
        DeviceError: there is no such device, precision or number of threads, or what drives the
            device is missing.
        RunError: an environment variable that says how products are computed has no such value.
    """
    check_switches()
    if isinstance(device, str) and (device, precision) == ("cpu", "fp32"):
        return CpuMachine(_threads(threads))
    # Imported here: most programs need no device.
    from nnet3_runtime_cuda.cuda.machine import (
        DeviceMachine,
        check_precision,
        cuda_ordinal,
        open_platform,
    )

    if not isinstance(device, str):
        if not hasattr(device, "allocate"):
            raise DeviceError(
                f"unknown device {device!r}; expected 'cpu', 'cuda', 'cuda:<number>', as 'cuda:1', "
                "or a platform that is open"
            )
        return DeviceMachine(device)
    if cuda_ordinal(device) is not None:
        return DeviceMachine(open_platform(device, precision))
    threads = _threads(threads)
    check_precision(precision)
    if precision == "bf16":
        from nnet3_runtime_cuda.cpu.bf16 import Bf16Machine

        return Bf16Machine(threads)
    raise DeviceError(f"device '{device}' computes in 'fp32', not in '{precision}'")


def _threads(wanted: int | None) -> int:
    """The number of threads that share the work of a program; see `machine_for`."""
    check_number_of_threads(wanted, DeviceError)
    return min(blas_threads(), MOST_THREADS_UNASKED) if wanted is None else wanted


class DeviceNnet:
    """A network on a device: parameters, gradient, kernels, statistics.

    Several computers may share one, for as long as at most one of them updates it.

    Attributes:
        nnet: The network that the caller gave.
        machine: The machine that runs programs with it.
        lowering: A lock for binding a computation to the network, because that makes kernels.
    """

    def __init__(
        self,
        nnet: Nnet,
        *,
        device: str | Platform = "cpu",
        precision: str = "fp32",
        trainable: bool = False,
        natural_gradient: bool = False,
        seed: int = 0,
        dtype: npt.DTypeLike = np.float32,
        threads: int | None = None,
    ) -> None:
        """Puts a network on a device.

        Args:
            nnet: The network.
            device: "cpu", "cuda", "cuda:<number>", or a platform that is open; see `machine_for`.
            precision: Of matrix products: "fp32", "tf32", ...; see `machine_for`. On the
                processor, only parameters that are not trainable are rounded.
            trainable: Whether training changes `parameters`. They are then copied to one buffer;
                otherwise the arrays of the network are used in place.
            natural_gradient: Whether backward passes compute the natural gradient.
            seed: Of masks, and of the choice of minibatches whose statistics are recorded.
            dtype: Of parameters and values: float32 or, on the processor, float64.
            threads: The number of threads that share the work, on the processor, at most 256; None
                for as many as the BLAS library uses when the network is put there, but at most 4.

        Raises:
            DeviceError: there is no such device, precision or number of threads, or its driver or a
                library is missing; or the dtype is neither of these.
            RunError: the seed is negative; or an environment variable that says how products are
                computed has no such value.
            TrainingError: a learning rate is infinite, and the network is trainable.
        """
        self.nnet = nnet
        self.dtype = _real_dtype(dtype)
        self.machine = machine_for(device, precision, threads)
        self.lowering = threading.Lock()
        self._natural_gradient = natural_gradient
        self._random = Generators(seed)
        self._kernels: dict[int, Kernel] = {}
        self._clears: dict[frozenset[int], Callable[[], object]] = {}
        self._arrays = [component.parameter_arrays() for component in nnet.components]
        self._with_exact_zeros = with_exact_zeros(nnet)
        sizes = [sum(array.size for array in named.values()) for named in self._arrays]
        self._starts: list[int] = [0, *itertools.accumulate(sizes)]
        self._parameters: Array | None = None
        if trainable:
            _check_learning_rates(nnet)
            self._parameters = self.machine.zeros((self._starts[-1],), self.dtype)
            for number, named in enumerate(self._arrays):
                for name, view in self._views(self._parameters, number).items():
                    view[...] = named[name]
            self.machine.push([self._parameters])

    def __repr__(self) -> str:
        """The network, the type of its numbers, and the kind of machine that has them."""
        machine = type(self.machine).__name__
        return f"<DeviceNnet of {self.nnet!r}: {np.dtype(self.dtype).name}, {machine}>"

    def with_network(self, nnet: Nnet) -> DeviceNnet:
        """Another network with the same components, on the same device; it must not be trained.

        Both share kernels, and the forms of parameters that kernels have made.

        Args:
            nnet: A network with the components of this one, and perhaps further ones without
                parameters.
        """
        count = len(self.nnet.components)
        assert all(map(operator.is_, nnet.components, self.nnet.components)), "the same components"
        other = copy.copy(self)
        other.nnet = nnet
        if len(nnet.components) > count:
            added = [component.parameter_arrays() for component in nnet.components[count:]]
            assert not any(added), "further components have no parameters"
            other._arrays = [*self._arrays, *added]
            other._starts = [*self._starts, *self._starts[-1:] * len(added)]
            other._kernels = {}
        return other

    def check_traceable(self, trace: object) -> None:
        """Checks that computations of this network can be traced.

        Args:
            trace: The caller's tracer.

        Raises:
            RunError: it is not a `Tracer`; or the network is on a device, where the processor does
                not see single commands.
        """
        from nnet3_runtime_cuda.tracing import Tracer

        if not isinstance(trace, Tracer):
            raise RunError(f"trace must be a Tracer or None (got {trace!r:.80})")
        if self.machine.is_device:
            raise RunError("a trace needs a network on the processor, device='cpu'")

    @property
    def parameters(self) -> Array:
        """(num_parameters,), the trainable parameters in Kaldi's order.

        The kernels use views of it: training changes it in place. On a CUDA device this is a copy
        of the present parameters: changing it changes nothing there.

        Raises:
            RunError: the network was not put here to be trained.
        """
        if self._parameters is None:
            raise RunError("the network is not trainable: its parameters are not in one buffer")
        self.machine.pull([self._parameters])
        return self._parameters

    @property
    def direction(self) -> Array:
        """(num_parameters,), the result of the last backward pass for the parameters.

        The gradient of the objective, or the natural gradient. On a CUDA device this is a copy:
        changing it changes nothing there.
        """
        self.machine.pull([self._direction])
        return self._direction

    @cached_property
    def _direction(self) -> Array:
        return self.machine.zeros((self._starts[-1],), self.dtype)

    def clear_direction(self, *, kept: Collection[int] = ()) -> None:
        """Sets `direction` to zero, except for the components of these numbers."""
        key = frozenset(kept)
        if key not in self._clears:
            self._clears[key] = self._clear(key)
        self._clears[key]()

    def _clear(self, kept: frozenset[int]) -> Callable[[], object]:
        """A call that sets what is not kept to zero, in as few pieces as there are."""
        tape, begin = self.machine.tape(self.dtype), 0
        for number, (start, end) in enumerate(itertools.pairwise(self._starts)):
            if number in kept:
                if start > begin:
                    tape.fill(0.0, self._direction[begin:start])
                begin = end
        if self._starts[-1] > begin:
            tape.fill(0.0, self._direction[begin:])
        return self.machine.finish(tape)

    @contextmanager
    def reading_files(self) -> Iterator[None]:
        """While kernels lay out parameters, some of which may be views of files.

        Their memory is given back at the end; whoever uses them again gets them from the files.

        Raises:
            ModelFileError: A file was written to after it was read.
        """
        components = self.nnet.components
        maps = [*maps_of(array for each in components for array in each.arrays().values())]
        for mapping in maps:
            mapping.check_unchanged()
        yield
        for mapping in maps:
            mapping.release()

    def kernel(self, component: int) -> Kernel:
        """The kernel of the component of that number.

        Raises:
            UnsupportedComponentError: its type has no arithmetic here.
        """
        if component not in self._kernels:
            value = self.nnet.components[component]
            kernel = kernel_class(value, self.nnet.component_names[component])
            with np.errstate(all="ignore"):  # statistics of a file may be infinite
                self._kernels[component] = kernel(value, self._store(component))
        return self._kernels[component]

    def _store(self, number: int) -> ComponentStore:
        if self._parameters is not None:
            parameters = self._views(self._parameters, number)
        else:
            parameters = {
                name: np.asarray(array, dtype=self.dtype)
                for name, array in self._arrays[number].items()
            }
        random = self._random
        return ComponentStore(
            parameters=parameters,
            directions=partial(_directions, weakref.ref(self), number),
            natural_gradient=self._natural_gradient,
            rng=lambda: random.masks,
            draw=random.draw,
            dtype=self.dtype,
            new_tape=partial(self.machine.tape, self.dtype, is_alone=True),
            # On a device products take transposed factors as they are.
            is_fixed=self._parameters is None and not self.machine.is_device,
            has_exact_zeros=number in self._with_exact_zeros,
        )

    def directions(self, number: int) -> dict[str, Array]:
        """The part of `direction` that belongs to a component, in the shapes of its parameters."""
        return self._views(self._direction, number)

    def _views(self, buffer: Array, number: int) -> dict[str, Array]:
        """The part of a buffer that belongs to a component, in the shapes of its parameters."""
        start, views = self._starts[number], {}
        for name, array in self._arrays[number].items():
            views[name] = buffer[start : start + array.size].reshape(array.shape)
            start += array.size
        return views

    def take_step(self) -> None:
        """Moves the parameters along `direction`, each by the learning rate of its component.

        This is the plain step, for a training loop of your own: `Trainer` adds momentum and l2
        terms, and limits the change. Ctrl-C takes effect after it.

        Raises:
            RunError: the network was not put here to be trained.
        """
        with PostponedSignals():
            self._step()

    @cached_property
    def _step(self) -> Callable[[], object]:
        if self._parameters is None:
            raise RunError("the network is not trainable: its parameters are not in one buffer")
        tape, start, pieces = self.machine.tape(self.dtype), 0, []
        for component in self.nnet.components:
            for size, rate in learning_rates(component):
                # In pieces that stay in the cache.
                step = size if self.machine.is_device else STEP_BLOCK
                for begin in range(start, start + size, step):
                    pieces.append((slice(begin, min(begin + step, start + size)), rate))
                start += size
        for piece, rate in tape.independent(pieces):
            tape.add_scaled(self._direction[piece], rate, self._parameters[piece])
        return self.machine.finish(tape)

    def tape(self) -> Tape:
        """A tape that records operations on the arrays of this device."""
        return self.machine.tape(self.dtype)

    def record_forgetting(self, tape: Tape, factor: float) -> None:
        """Records that the statistics of batch-norm components so far get a smaller weight.

        Args:
            tape: Records the arithmetic.
            factor: The factor of the number of rows seen so far.
        """
        for number, component in enumerate(self.nnet.components):
            # In test mode the statistics are used, and none are recorded.
            if isinstance(component, BatchNormComponent) and not component.test_mode:
                kernel = self.kernel(number)
                assert isinstance(kernel, BatchNormKernel)
                kernel.record_forgetting(tape, factor)

    @property
    def random_state(self) -> RandomState:
        """The state of the generators of masks and decisions; set it to draw the same numbers."""
        return self._random.state

    @random_state.setter
    def random_state(self, state: RandomState) -> None:
        self._random.state = state

    @property
    def training_state(self) -> TrainingState:
        """The state of training beside the parameters, between two minibatches."""
        return TrainingState(
            random=self.random_state,
            kernels=tuple(
                state_of(kernel, number, self.machine)
                for number, kernel in sorted(self._kernels.items())
            ),
            exact_zeros=tuple(sorted(self._with_exact_zeros)),
        )

    def resume(self, state: TrainingState) -> None:
        """Continues from a state of the same network; nothing may be bound to it yet.

        Raises:
            SerializationError: it is the state of another network.
        """
        count = len(self.nnet.components)
        for number in (*(state.exact_zeros or ()), *(each.component for each in state.kernels)):
            if not 0 <= number < count:
                raise SerializationError(
                    f"expected one of {count} components, found number {number}"
                )
        if state.exact_zeros is not None:
            self._with_exact_zeros = frozenset(state.exact_zeros)
        for each in state.kernels:
            resume(self.kernel(each.component), each, self.machine)
        self.random_state = state.random

    def savepoint(self) -> Savepoint:
        """Keeps `training_state` from one step to the next, so that a step can be undone."""
        return Savepoint(self.machine, self._kernels, self._random)

    def freeze_natural_gradient(self, on: bool) -> None:
        """Sets whether backward passes leave the estimates of Fisher matrices unchanged."""
        self.machine.freeze_estimates(on)

    def change_options(self, nnet: Nnet) -> None:
        """Takes over options of components; computations that are lowered later use them.

        Args:
            nnet: The same network, with components that differ in options but not in parameters,
                such as the proportion of dropout.

        Raises:
            TrainingError: a learning rate is infinite, and the network is trainable.
        """
        if self._parameters is not None:
            _check_learning_rates(nnet)
        self.nnet = nnet
        vars(self).pop("_step", None)  # it has the old learning rates
        for number, kernel in self._kernels.items():
            kernel.follow(nnet.components[number])

    def gradient(self) -> Nnet:
        """The network with `direction` in place of the parameters, marked as a gradient."""
        return self._with_values(self.direction, is_gradient=True)

    def current(self) -> Nnet:
        """The network with its present parameters and statistics."""
        for kernel in self._kernels.values():
            self.machine.pull(kernel.store.states)
        values = None if self._parameters is None else self.parameters
        return self._with_values(values, is_gradient=False)

    def _with_values(self, values: Array | None, *, is_gradient: bool) -> Nnet:
        """The network with parameters from a buffer, if there is one."""
        replacements = {}
        for number, component in enumerate(self.nnet.components):
            if number in self._kernels and not is_gradient:
                with np.errstate(all="ignore"):
                    component = self._kernels[number].with_statistics()
            if self._arrays[number] and values is not None:
                views = self._views(values, number)
                copies = {name: np.array(view, dtype=np.float32) for name, view in views.items()}
                component = component.with_parameters(copies)
            if is_gradient and isinstance(component, UpdatableComponent):
                component = component.replace(is_gradient=True)
            replacements[self.nnet.component_names[number]] = component
        return self.nnet.with_components(replacements)


def _real_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype that is meant; raises a DeviceError unless it is float32 or float64."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):
        raise DeviceError(f"the dtype must be float32 or float64 (got {dtype!r})") from None
    if found not in (np.float32, np.float64):
        raise DeviceError(f"the dtype must be float32 or float64 (got {found})")
    return found


def _directions(owner: weakref.ref[DeviceNnet], number: int) -> dict[str, Array]:
    """The directions of a component of a network, which its kernels must not keep alive."""
    nnet = owner()
    assert nnet is not None, "kernels serve a network that exists"
    return nnet.directions(number)


def _check_learning_rates(nnet: Nnet) -> None:
    """Raises a TrainingError that names a component with an infinite one."""
    for name, component in zip(nnet.component_names, nnet.components, strict=True):
        for _, rate in learning_rates(component):
            if not math.isfinite(rate):
                raise TrainingError(
                    f"component '{name}': the learning rate must be finite (got {rate})"
                )


def learning_rates(component: Component) -> list[tuple[int, float]]:
    """Numbers of parameters and their rate, in order; parts of a composite have their own."""
    if isinstance(component, CompositeComponent):
        return [pair for part in component.components for pair in learning_rates(part)]
    if isinstance(component, UpdatableComponent) and component.num_parameters:
        return [(component.num_parameters, component.learning_rate)]
    return []
