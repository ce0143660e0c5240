"""Where the command-line tools of nnet3-runtime-cuda start; see `nnet3_tools`."""

from nnet3_tools import entry_point

nnet3_compute = entry_point("nnet3_runtime_cuda.tools.nnet3_compute")
nnet3_xvector_compute = entry_point("nnet3_runtime_cuda.tools.nnet3_xvector_compute")
