"""A trial of whether products with factors in panels are faster on this machine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from nnet3_runtime_cuda.cpu.products.timing import fastest
from nnet3_runtime_cuda.cpu.switches import PANELS
from nnet3_runtime_cuda.operations import Array
from nnet3_runtime_cuda.operations.panels import Panels, stacks

TRIAL_ROWS = (8, 64)
TRIAL_SHAPE = (512, 256)


@functools.cache
def are_faster() -> bool:
    """Whether NumPy's matrix library gains by panels on this machine; tried once, on one thread."""
    wanted = PANELS.chosen()
    if wanted is not None:
        return wanted == "1"
    ways = {
        name: [trial(rows, in_panels=name == "panels") for rows in TRIAL_ROWS]
        for name in ("whole", "panels")
    }
    with threadpool_limits(limits=1, user_api="blas"):
        return fastest(ways) == "panels"


def trial(rows: int, *, in_panels: bool) -> Callable[[], object]:
    """A product with fixed parameters by NumPy, for timing."""
    x, parameters, out = trial_operands(rows)
    if not in_panels:
        return partial(np.matmul, x, parameters, out)
    ((_, ((_, panels),)),) = Panels.of(parameters).groups
    calls = [partial(np.matmul, *stack, order="C") for stack in stacks(x, panels, out)]

    def run() -> None:
        for call in calls:
            call()

    return run


def trial_operands(rows: int) -> tuple[Array, Array, Array]:
    """Factors and memory for the product: (rows, inner), (inner, columns), (rows, columns)."""
    inner, columns = TRIAL_SHAPE
    shapes = (rows, inner), TRIAL_SHAPE, (rows, columns)
    x, parameters, out = (np.ones(shape, np.float32) for shape in shapes)
    return x, parameters, out
