"""Networks on devices: their parameters in one block, and the machine that computes."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_runtime_cuda.cuda.platform.devices import check_cuda_libraries
    from nnet3_runtime_cuda.device.device_nnet import (
        STEP_BLOCK,
        DeviceNnet,
        check_number_of_threads,
        learning_rates,
        machine_for,
    )
    from nnet3_runtime_cuda.device.number_of_threads import MOST_THREADS
    from nnet3_runtime_cuda.device.random_state import (
        GeneratorState,
        RandomState,
    )
    from nnet3_runtime_cuda.device.signals import PostponedSignals
    from nnet3_runtime_cuda.device.training_state import (
        KernelState,
        Savepoint,
        TrainingState,
    )
    from nnet3_runtime_cuda.machine import (
        Machine,
        Threads,
    )

__all__ = [
    "MOST_THREADS",
    "STEP_BLOCK",
    "DeviceNnet",
    "GeneratorState",
    "KernelState",
    "Machine",
    "PostponedSignals",
    "RandomState",
    "Savepoint",
    "Threads",
    "TrainingState",
    "check_cuda_libraries",
    "check_number_of_threads",
    "learning_rates",
    "machine_for",
]

if not TYPE_CHECKING:  # else a type checker would take any name for one of this package
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "nnet3_runtime_cuda.machine": (
                "Machine",
                "Threads",
            ),
            "nnet3_runtime_cuda.device.random_state": (
                "GeneratorState",
                "RandomState",
            ),
            "nnet3_runtime_cuda.cuda.platform.devices": ("check_cuda_libraries",),
            "nnet3_runtime_cuda.device.device_nnet": (
                "STEP_BLOCK",
                "DeviceNnet",
                "check_number_of_threads",
                "learning_rates",
                "machine_for",
            ),
            "nnet3_runtime_cuda.device.number_of_threads": ("MOST_THREADS",),
            "nnet3_runtime_cuda.device.signals": ("PostponedSignals",),
            "nnet3_runtime_cuda.device.training_state": (
                "KernelState",
                "Savepoint",
                "TrainingState",
            ),
        },
    )
