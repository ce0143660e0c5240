"""From the computation graph to steps: epochs, phases, and the rows that are computed together."""

from nnet3_compiler.steps.network import (
    Epochs,
    Graphs,
    Network,
    Phases,
    compute_epochs,
    compute_phases,
)
from nnet3_compiler.steps.steps import Steps

__all__ = [
    "Epochs",
    "Graphs",
    "Network",
    "Phases",
    "Steps",
    "compute_epochs",
    "compute_phases",
]
