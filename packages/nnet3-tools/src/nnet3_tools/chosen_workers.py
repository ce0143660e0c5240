"""Names of `flags`."""

from nnet3_tools.flags import DASK as DASK
from nnet3_tools.flags import JOBS as JOBS
from nnet3_tools.flags import chosen_workers as chosen_workers
