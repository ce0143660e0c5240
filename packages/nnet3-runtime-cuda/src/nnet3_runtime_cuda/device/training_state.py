"""What training changes on a device beside parameters, as a value: written, and taken up again.

A run that stops and goes on from it computes the same bits as one that does not stop. So sums are
kept as they are, in double precision, where a `Nnet` has averages; counts are in a `Nnet` exactly.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
from nnet3_descriptors import SerializationError

from nnet3_runtime_cuda.device.random_state import RandomState
from nnet3_runtime_cuda.kernels import Kernel
from nnet3_runtime_cuda.machine import Machine
from nnet3_runtime_cuda.operations.estimate_state import EstimateState


@attrs.frozen(kw_only=True, eq=False)
class KernelState:
    """What a component has gathered.

    Attributes:
        component: Number of the component.
        sums: What it sums up where the values are.
        estimates: Those of its natural gradient.
    """

    component: int
    sums: tuple[npt.NDArray[np.float64], ...]
    estimates: tuple[EstimateState, ...]


@attrs.frozen(kw_only=True, eq=False)
class TrainingState:
    """What training changes on a device, beside parameters.

    Attributes:
        random: What comes of random numbers.
        kernels: What components have gathered; those that have not been used yet are not there.
    """

    random: RandomState
    kernels: tuple[KernelState, ...]


def state_of(kernel: Kernel, component: int, machine: Machine) -> KernelState:
    """What the kernel of a component has gathered."""
    machine.pull(kernel.store.states)
    return KernelState(
        component=component,
        sums=tuple(array.copy() for array in kernel.store.states),
        estimates=tuple(machine.estimate_state(each) for each in kernel.store.estimates),
    )


def resume(kernel: Kernel, state: KernelState, machine: Machine) -> None:
    """Lets a kernel that nothing uses yet go on from a state.

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
