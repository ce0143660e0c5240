"""From the computation graph to steps: epochs, phases, and the rows that are computed together."""

from nnet3_compiler.steps.epochs import Epochs, compute_epochs
from nnet3_compiler.steps.graphs import Graphs
from nnet3_compiler.steps.network import Network
from nnet3_compiler.steps.phases import Phases, compute_phases
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
