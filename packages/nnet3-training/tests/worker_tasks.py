"""Tasks for worker processes in tests: functions that processes can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
from nnet3_runtime_cuda.cpu import choices


def squared(number: int) -> int:
    """The square."""
    return number * number


def products(seed: int) -> bytes:
    """The bytes of a chain of products, which depend on the number of threads."""
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((200, 700), dtype=np.float32)
    return (matrix @ matrix.T @ matrix).tobytes()


def killed_once(marker: str) -> str:
    """Dies at the first attempt, as if killed."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return marker


def killed(_: object) -> None:
    """Dies at each attempt."""
    os.kill(os.getpid(), signal.SIGKILL)


def refused(number: int) -> int:
    """Raises an error for 3."""
    if number == 3:
        raise ValueError("not 3")
    return number


def not_to_be_sent(_: object) -> object:
    """Returns an object that cannot be sent."""
    return lambda: None


def announced(_: object) -> None:
    """Writes a line, in one piece, to standard output, and computes for an hour."""
    os.write(1, b"at work\n")
    end = time.monotonic() + 3600.0
    matrix = np.eye(500)
    while time.monotonic() < end:
        matrix @= matrix


def chosen(_number: int) -> dict[str, str]:
    """How this process computes products."""
    return choices()
