"""Who computes: this process, processes beside it, or a Dask cluster. Results are the same.

workers.py         what all have in common
processes.py       processes of this machine, of which one that dies is replaced
dask_workers.py    the workers of a Dask cluster
"""

from nnet3_training.workers.dask_workers import DaskWorkers
from nnet3_training.workers.processes import Processes
from nnet3_training.workers.workers import InProcess, Workers

__all__ = ["DaskWorkers", "InProcess", "Processes", "Workers"]
