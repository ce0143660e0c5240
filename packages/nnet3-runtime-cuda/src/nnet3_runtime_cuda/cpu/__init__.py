"""The processor as a machine: operations become calls of NumPy and of a BLAS library."""

from nnet3_runtime_cuda.cpu.products import choices
from nnet3_runtime_cuda.cpu.tape import NumpyTape
from nnet3_runtime_cuda.cpu.threads import LIMIT, SharedTasks, Task
from nnet3_runtime_cuda.operations.scratch import Workspace

__all__ = ["LIMIT", "NumpyTape", "SharedTasks", "Task", "Workspace", "choices"]
