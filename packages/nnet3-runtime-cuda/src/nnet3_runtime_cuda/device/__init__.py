"""Networks on devices: their parameters in one block, and the machine that computes."""

from nnet3_runtime_cuda.device.device_nnet import (
    MOST_THREADS,
    STEP_BLOCK,
    DeviceNnet,
    learning_rates,
    machine_for,
)
from nnet3_runtime_cuda.device.training_state import TrainingState

__all__ = [
    "MOST_THREADS",
    "STEP_BLOCK",
    "DeviceNnet",
    "TrainingState",
    "learning_rates",
    "machine_for",
]
