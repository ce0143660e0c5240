"""Threads that share the calls of a program, or run programs side by side."""

from nnet3_runtime_cuda.cpu.threads.blas_threads import LIMIT
from nnet3_runtime_cuda.cpu.threads.shared_tasks import SharedTasks, Task

__all__ = ["LIMIT", "SharedTasks", "Task"]
