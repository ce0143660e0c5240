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
from nnet3_runtime_cuda.lowering.commands import bind
from nnet3_runtime_cuda.lowering.plan import Capabilities, plan_with
from nnet3_runtime_cuda.machine import Program
from nnet3_runtime_cuda.operations.scratch import Workspace

if TYPE_CHECKING:
    from nnet3_runtime_cuda.tracing.tracer import Watch


_LOCK = threading.Lock()
_PAUSES: list[bool] = []
"""For each thread that wants no collections now, whether they went on before: only the first's."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Stops collections in the context, for the whole process: the objects made there will last.

    A program of thousands of sequences has millions of calls and operands. The collector would
    visit all objects again whenever their number has grown by a quarter, which took a third of the
    time.
    """
    with _LOCK:
        _PAUSES.append(gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _LOCK:
            was_enabled = _PAUSES.pop()
            if was_enabled and not _PAUSES:
                gc.enable()


def lower(
    nnet: DeviceNnet,
    computation: NnetComputation,
    *,
    is_alone: bool = False,
    watch: Watch | None = None,
    workspace: Workspace | None = None,
) -> Program:
    """Binds a computation to memory and to the kernels of a network.

    Args:
        nnet: The network.
        computation: The computation to lower.
        is_alone: Whether the program runs on one thread, though the network has more.
        watch: Times the calls of each command, on the processor.
        workspace: Memory that the program shares with others, on the processor.

    Raises:
        ComputationError: the computation cannot be run. It is a CheckError if a command is at
            fault, for example if the command does not fit the component or node that it names.
        UnsupportedComponentError: this package does not implement a component type.
        DeviceMemoryError: the device has too little memory; the message says what would fit.
    """
    check_runnable(nnet.nnet, computation)
    with nnet.lowering, uncollected(), np.errstate(all="ignore"):  # factors may overflow
        tape = nnet.machine.tape(nnet.dtype, is_alone=is_alone, workspace=workspace)
        plan = plan_with(nnet.nnet, computation, Capabilities(nnet, tape))
        program = bind(nnet, computation, plan, tape, watch)
        return nnet.machine.bind(program, tape, computation)
