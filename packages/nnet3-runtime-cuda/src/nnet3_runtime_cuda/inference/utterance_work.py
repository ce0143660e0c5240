"""What is to be done for an utterance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from nnet3_runtime_cuda.arrays import FloatArray
from nnet3_runtime_cuda.cpu.threads.shared_tasks import Task


@attrs.frozen(kw_only=True)
class Work:
    """What it takes to compute something for an utterance.

    Attributes:
        tasks: To be called once each: in any order, on any threads, several at a time.
        finish: To be called when all of them are done; returns the result.
    """

    tasks: Sequence[Task]
    finish: Callable[[], FloatArray]
