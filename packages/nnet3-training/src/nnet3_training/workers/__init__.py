"""Workers: this process, other processes, or a Dask cluster. Their results are the same.

workers.py         the common interface
processes.py       processes of this machine; a new one replaces one that dies
dask_workers.py    the workers of a Dask cluster
"""

from nnet3_training.workers.dask_workers import DaskWorkers
from nnet3_training.workers.processes import Processes
from nnet3_training.workers.workers import InProcess, Workers

__all__ = ["DaskWorkers", "InProcess", "Processes", "Workers"]
