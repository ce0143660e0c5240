"""Workers: this process, other processes, or a Dask cluster. Their results are the same."""

from typing import TYPE_CHECKING

from nnet3_descriptors.lazy_exports import on_first_use

if TYPE_CHECKING:
    from nnet3_training.workers.workers import DaskWorkers as DaskWorkers
    from nnet3_training.workers.workers import InProcess as InProcess
    from nnet3_training.workers.workers import Processes as Processes
    from nnet3_training.workers.workers import Workers as Workers
else:
    __getattr__, __dir__ = on_first_use(__name__)
