"""The choices of this process by trials, for other processes that are to compute the same bits."""

from __future__ import annotations

from nnet3_runtime_cuda.cpu.products import panel_trial
from nnet3_runtime_cuda.cpu.products.blas import library_name
from nnet3_runtime_cuda.cpu.switches import BLAS, PANELS


def choices() -> dict[str, str]:
    """The environment variables under which another process computes products in the same way.

    Raises:
        RunError: one of them has an unknown value here.
    """
    panels = "1" if panel_trial.are_faster() else "0"
    return {BLAS.variable: library_name(), PANELS.variable: panels}
