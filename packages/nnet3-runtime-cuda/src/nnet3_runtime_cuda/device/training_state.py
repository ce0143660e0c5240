"""The state of training on a device, beside parameters: as a value that can be stored, and kept.

A run that continues from it computes the same bits as a run that did not stop. So sums are stored
unchanged, in double precision, where a `Nnet` has averages. A `Nnet` has exact counts, so these are
not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import SerializationError

from nnet3_runtime_cuda.device.random_state import Generators, RandomState
from nnet3_runtime_cuda.keeping import KeptArrays, Restore, keep_attributes
from nnet3_runtime_cuda.kernels import Kernel
from nnet3_runtime_cuda.machine import Machine
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.estimate_state import EstimateState


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

        def restore() -> None:
            for each in restores:
                each()

        return restore


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
