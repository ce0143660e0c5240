"""Programs for CUDA devices: operations become kernels, and a platform runs them.

A computation is lowered as for the processor, on memory that is reserved but never touched; the
recorded operations become CUDA C++ source and matrix products, bound to addresses on the device.
Everything that only a device can do is behind the `Platform` protocol.
"""

from nnet3_runtime_cuda.cuda.platform import Gemm, Matrix, Platform, Properties

__all__ = ["Gemm", "Matrix", "Platform", "Properties"]
