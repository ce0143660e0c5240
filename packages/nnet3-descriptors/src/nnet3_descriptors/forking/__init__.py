"""Forking a process while its threads compute."""

from nnet3_descriptors.forking.gate import GATE, ForkError, ForkGate

__all__ = ["GATE", "ForkError", "ForkGate"]
