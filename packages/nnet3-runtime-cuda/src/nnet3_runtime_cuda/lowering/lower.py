"""Lowering: each command of a computation becomes calls that are bound to their operands."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from nnet3_computation import NnetComputation
from nnet3_computation.checks import check_runnable

from nnet3_runtime_cuda.device import DeviceNnet
from nnet3_runtime_cuda.lowering.bind.binding import Binding
from nnet3_runtime_cuda.lowering.capabilities import Capabilities
from nnet3_runtime_cuda.lowering.plan.make import plan_with
from nnet3_runtime_cuda.machine import Program

if TYPE_CHECKING:
    from nnet3_runtime_cuda.tracing.tracer import Watch


class _Pause:
    """The number of threads that want no collections now, and the setting before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._was_enabled = False

    def begin(self) -> None:
        """One thread more."""
        with self._lock:
            if self._count == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._count += 1

    def end(self) -> None:
        """One thread less; after the last one collections go on, if they did before."""
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._was_enabled:
                gc.enable()


_PAUSE = _Pause()


@contextmanager
def uncollected() -> Iterator[None]:
    """Stops collections in the context, for the whole process: the objects made there will last.

    A program of thousands of sequences has millions of calls and operands. The collector would
    visit all objects again whenever their number has grown by a quarter, which took a third of the
    time.
    """
    _PAUSE.begin()
    try:
        yield
    finally:
        _PAUSE.end()


def lower(
    nnet: DeviceNnet,
    computation: NnetComputation,
    *,
    is_alone: bool = False,
    watch: Watch | None = None,
) -> Program:
    """Binds a computation to memory and to the kernels of a network.

    Args:
        nnet: The network.
        computation: The computation to lower.
        is_alone: Whether the program runs on one thread, though the network has more.
        watch: Times the calls of each command, on the processor.

    Raises:
        ComputationError: the computation cannot be run. It is a CheckError if a command is at
            fault, for example if the command does not fit the component or node that it names.
        UnsupportedComponentError: this package does not implement a component type.
        DeviceMemoryError: the device has too little memory; the message says what would fit.
    """
    check_runnable(nnet.nnet, computation)
    with nnet.lowering, uncollected(), np.errstate(all="ignore"):  # factors may overflow
        tape = nnet.machine.tape(nnet.dtype, is_alone=is_alone)
        plan = plan_with(nnet.nnet, computation, Capabilities(nnet, tape))
        program = Binding(nnet, computation, plan, tape, watch).run()
        return nnet.machine.bind(program, tape, computation)
