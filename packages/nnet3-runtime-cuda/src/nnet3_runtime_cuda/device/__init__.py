"""Networks on devices: their parameters in one block, and the machine that computes."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_runtime_cuda.cpu.threads import Workers as Workers
    from nnet3_runtime_cuda.cuda.machine import check_cuda_libraries as check_cuda_libraries
    from nnet3_runtime_cuda.device.device_nnet import STEP_BLOCK as STEP_BLOCK
    from nnet3_runtime_cuda.device.device_nnet import DeviceNnet as DeviceNnet
    from nnet3_runtime_cuda.device.device_nnet import learning_rates as learning_rates
    from nnet3_runtime_cuda.device.device_nnet import machine_for as machine_for
    from nnet3_runtime_cuda.device.state import GeneratorState as GeneratorState
    from nnet3_runtime_cuda.device.state import KernelState as KernelState
    from nnet3_runtime_cuda.device.state import PostponedSignals as PostponedSignals
    from nnet3_runtime_cuda.device.state import RandomState as RandomState
    from nnet3_runtime_cuda.device.state import Savepoint as Savepoint
    from nnet3_runtime_cuda.device.state import TrainingState as TrainingState
    from nnet3_runtime_cuda.errors import MOST_THREADS as MOST_THREADS
    from nnet3_runtime_cuda.errors import check_number_of_threads as check_number_of_threads
    from nnet3_runtime_cuda.machine import Machine as Machine
    from nnet3_runtime_cuda.machine import Threads as Threads
else:
    __getattr__, __dir__ = on_first_use(__name__)
