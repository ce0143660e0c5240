"""Lowering: each command of a computation becomes calls that are bound to their operands."""

from __future__ import annotations

from nnet3_compiler.computation import NnetComputation
from nnet3_optimizer import check_runnable

from ..device import DeviceNnet
from ..program import Program
from . import binders as binders  # registers what is done with each command
from .lowering import Lowering


def lower(nnet: DeviceNnet, computation: NnetComputation, *, is_alone: bool = False) -> Program:
    """Binds a computation to memory and to the kernels of a network.

    Args:
        nnet: The network.
        computation: What is lowered.
        is_alone: Whether it is to run on one thread, though the network has more.

    Raises:
        ComputationError: the computation cannot be run; as a CheckError where a command shows it,
            such as one that does not fit the component or node that it names.
        UnsupportedComponentError: a component type has no arithmetic here.
        DeviceMemoryError: the device has not as much memory; the message says what would fit.
    """
    check_runnable(nnet.nnet, computation)
    with nnet.lowering:
        lowering = Lowering(nnet, computation, is_alone=is_alone)
        return nnet.machine.bind(lowering.run(), lowering.tape, computation)
