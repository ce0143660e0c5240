"""What whole processes cost."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Spent(NamedTuple):
    """The cost of a process: seconds, processor seconds, and largest memory in MB."""

    seconds: float
    processor: float
    megabytes: float


def spent(arguments: Sequence[str], log: Path, threads: int = 1) -> Spent:
    """Runs a program to its end.

    Args:
        arguments: The program and its arguments.
        log: Where its standard error goes.
        threads: Number of threads of the BLAS library.

    Raises:
        SystemExit: it failed.
    """
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    opened = (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    start = time.perf_counter()
    process = os.posix_spawnp(arguments[0], arguments, environment, file_actions=[opened])
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"failed: {arguments}\n{log.read_text(encoding='utf-8')[-1000:]}")
    return Spent(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
