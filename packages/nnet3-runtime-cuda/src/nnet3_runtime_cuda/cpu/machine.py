"""Where programs run: what lowering, computers and networks need of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from nnet3_compiler.computation import NnetComputation

from nnet3_runtime_cuda.cpu.natural_gradient.online_estimate import OnlineNaturalGradient
from nnet3_runtime_cuda.cpu.numpy_settings import running
from nnet3_runtime_cuda.cpu.scratch import Scratch
from nnet3_runtime_cuda.cpu.tape import Array, Tape
from nnet3_runtime_cuda.cpu.threads.workers import Workers
from nnet3_runtime_cuda.program import Program


class Machine:
    """The processor: arrays are NumPy's, and a program is what was recorded.

    On a device arrays are shadows (see `ShadowMemory`): `pull` and `push` move what they stand for.

    Attributes:
        is_device: Whether it is another machine than the processor.
        workers: The threads that its programs share, if there are any.
    """

    is_device: ClassVar[bool] = False

    def __init__(self, threads: int = 1) -> None:
        """Runs programs on so many threads."""
        self.workers = Workers(threads) if threads > 1 else None

    def tape(self, dtype: npt.DTypeLike = np.float32, *, is_alone: bool = False) -> Tape:
        """A tape with scratch memory of its own.

        Args:
            dtype: Of the values.
            is_alone: Whether what it records is to run on one thread, beside other programs.
        """
        return Tape(np, dtype, Scratch(np), None if is_alone else self.workers)

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array of zeros."""
        return np.zeros(shape, dtype=dtype)

    def bind(self, program: Program, tape: Tape, computation: NnetComputation) -> Program:
        """A lowered program, ready to run."""
        return program

    def finish(self, tape: Tape) -> Callable[[], object]:
        """A call that runs what was recorded on a tape of this machine."""
        calls = tape.take()

        def run() -> None:
            with running():
                for call in calls:
                    call()

        return run

    def freeze_estimates(self, on: bool) -> None:
        """Says whether estimates on a device stay as they are; those on the host know it."""

    def pull_estimate(self, estimate: OnlineNaturalGradient) -> None:
        """Makes an estimate of the natural gradient show what it stands for."""

    def pull(self, arrays: Iterable[Array]) -> None:
        """Makes whole contiguous arrays show what they stand for."""

    def push(self, arrays: Iterable[Array]) -> None:
        """Makes what contiguous arrays stand for the same as what they show."""
