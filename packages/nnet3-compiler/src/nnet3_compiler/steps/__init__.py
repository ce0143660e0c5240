"""From the computation graph to steps: epochs, phases, and the rows that are computed together."""

from nnet3_compiler.steps.network import Network

__all__ = ["Network"]
